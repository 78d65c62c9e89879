// What a communicator did last, kept at all times at the cost of a few writes, so that a hang can be explained.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <fathom/comm/request.hpp>

namespace fathom::comm {

/// issued: other ranks can know of it; running: this rank moves data; done: its buffers are the caller's again.
enum class record_state : std::uint8_t { issued, running, done };
[[nodiscard]] constexpr const char* name_of(record_state state) {
    constexpr const char* names[] = {"issued", "running", "done"};
    return names[static_cast<int>(state)];
}

/// One operation of one rank.
struct flight_record {
    std::uint64_t sequence =
        0;  // collectives of a communicator are counted together, exchanges of a rank by themselves
    operation kind = operation::barrier;
    record_state state = record_state::issued;
    integer bytes = 0;  // as request::bytes counts them
    const char* label = "";
};

/// The last operations of one rank on one communicator, and the totals of all. Allocates nothing.
class flight_recorder {
  public:
    static constexpr std::uint64_t capacity = 256;

    /// Notes a new operation; gives its ticket.
    std::uint64_t begin(const request& what, std::uint64_t sequence, integer ranks) {
        const integer bytes = what.bytes(ranks);
        ring_[begun_ % capacity] = {sequence, what.kind, record_state::issued, bytes, what.label};
        bytes_[static_cast<std::size_t>(what.kind)] += bytes;
        ++calls_[static_cast<std::size_t>(what.kind)];
        return begun_++;
    }
    void set(std::uint64_t ticket, record_state state) {
        if (ticket + capacity >= begun_) ring_[ticket % capacity].state = state;
    }

    /// How many operations are still kept.
    [[nodiscard]] integer size() const { return static_cast<integer>(std::min(begun_, capacity)); }
    /// The n-th of the kept operations, the oldest first.
    [[nodiscard]] const flight_record& operator[](integer n) const {
        return ring_[(begun_ - static_cast<std::uint64_t>(size() - n)) % capacity];
    }
    /// Of all operations of a kind, kept or not.
    [[nodiscard]] integer bytes(operation kind) const { return bytes_[static_cast<std::size_t>(kind)]; }
    [[nodiscard]] integer calls(operation kind) const { return calls_[static_cast<std::size_t>(kind)]; }

  private:
    std::array<flight_record, capacity> ring_{};
    std::uint64_t begun_ = 0;
    std::array<integer, operations_count> bytes_{};
    std::array<integer, operations_count> calls_{};
};

}  // namespace fathom::comm
