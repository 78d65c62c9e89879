// One description of every operation between ranks, so that threads, MPI, NCCL and what wraps them implement one
// function.
#pragma once

#include <cstdint>
#include <fathom/comm/element.hpp>
#include <span>

namespace fathom::comm {

enum class operation : std::uint8_t {
    all_reduce,
    reduce_scatter,
    all_gather,
    all_to_all,
    broadcast,
    exchange,
    barrier
};
inline constexpr int operations_count = 7;
/// As messages write it.
[[nodiscard]] constexpr const char* name_of(operation kind) {
    constexpr const char* names[] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                     "broadcast",  "exchange",       "barrier"};
    return names[static_cast<int>(kind)];
}

/// How numbers of several ranks become one. Always in the order of ranks, so the result has the same bits everywhere. A
/// maximum over a NaN is NaN.
enum class reduction : std::uint8_t { sum, max };

/// One direction between two ranks, a part of an exchange.
struct message {
    integer peer;
    bool sends;
    element format;
    void* data;
    integer count;

    [[nodiscard]] constexpr integer bytes() const { return count * bytes_of(format); }
};

/// An operation between all ranks of a communicator (an exchange: between those that it names). Buffers, counts and
/// messages stay the caller's and must live, and not be written, until the operation is done.
struct request {
    operation kind = operation::barrier;
    element format = element::byte;
    reduction how = reduction::sum;
    const void* input = nullptr;
    void* output = nullptr;
    integer count = 0;  // elements: of a rank's part where there are parts, else of the buffer
    integer root = 0;
    // [rank], in elements
    std::span<const integer> send_counts{}, send_offsets{}, receive_counts{}, receive_offsets{};
    std::span<const message> messages{};
    const char* label = "";

    /// The same operation with a word on where it comes from, for records and reports. The text must outlive the run,
    /// as a literal does.
    [[nodiscard]] constexpr request from(const char* where) const {
        request labelled = *this;
        labelled.label = where;
        return labelled;
    }

    /// What a rank hands in, in bytes; of a gather, what it gets; of all_to_all and exchange, what it sends.
    [[nodiscard]] constexpr integer bytes(integer ranks) const {
        integer sum = 0;
        switch (kind) {
            case operation::all_reduce:
            case operation::broadcast:
                return count * bytes_of(format);
            case operation::reduce_scatter:
            case operation::all_gather:
                return ranks * count * bytes_of(format);
            case operation::all_to_all:
                if (send_counts.empty()) return ranks * count * bytes_of(format);
                for (const integer n : send_counts) sum += n * bytes_of(format);
                return sum;
            case operation::exchange:
                for (const message& m : messages) sum += m.sends ? m.bytes() : 0;
                return sum;
            case operation::barrier:
                break;
        }
        return sum;
    }
};

}  // namespace fathom::comm
