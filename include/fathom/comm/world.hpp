// The ranks that run together, as a program sees them: which one it is, how many there are, and who prints.
#pragma once

#include <atomic>
#include <cstdio>
#include <fathom/core/bytes.hpp>
#include <string_view>

namespace fathom {

/// One rank's view of all ranks. Rank 0 prints.
class world {
  public:
    explicit world(const std::atomic<bool>* stop = nullptr) : stop_(stop) {}
    [[nodiscard]] integer rank() const { return 0; }
    [[nodiscard]] integer size() const { return 1; }
    /// Whether somebody asked the program to stop (Ctrl-C under `launch`).
    [[nodiscard]] bool stop_requested() const { return stop_ != nullptr && stop_->load(std::memory_order_relaxed); }
    /// A line on standard output, on one rank.
    void print(std::string_view line) const {
        std::fwrite(line.data(), 1, line.size(), stdout);
        std::fputc('\n', stdout);
        std::fflush(stdout);
    }

  private:
    const std::atomic<bool>* stop_;
};

}  // namespace fathom
