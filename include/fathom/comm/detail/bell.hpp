// How a rank's thread sleeps until another rank did something, or until a time: what std::atomic's wait lacks.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>

namespace fathom::comm::detail {

/// One thread sleeps, any thread rings. The sleeper takes a ticket, looks once more at what it waits for, then sleeps;
/// who changes that does so with sequentially consistent order before ringing: one of the two sees the other.
class bell {
  public:
    [[nodiscard]] std::uint32_t ticket() {
        const std::uint32_t rung = rung_.load();
        sleeps_.store(true);
        return rung;
    }
    void sleep(std::uint32_t ticket, double seconds) {
        const auto whole = static_cast<time_t>(seconds);
        const timespec limit{whole, static_cast<long>(1e9 * (seconds - static_cast<double>(whole)))};
        static_assert(sizeof rung_ == sizeof(std::uint32_t));
        ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&rung_), FUTEX_WAIT_PRIVATE, ticket, &limit, nullptr, 0);
    }
    void awake() { sleeps_.store(false, std::memory_order_relaxed); }
    void ring() {
        if (!sleeps_.load()) return;
        rung_.fetch_add(1);
        ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&rung_), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    }

  private:
    std::atomic<std::uint32_t> rung_{0};
    std::atomic<bool> sleeps_{false};
};

}  // namespace fathom::comm::detail
