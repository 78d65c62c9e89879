// A part from each rank to each rank, of lengths known only at run time: tokens on their way to experts and back.
#pragma once

#include <fathom/comm/request.hpp>

namespace fathom::comm {

/// received[ranks, count] becomes each rank's row for this rank out of its sent[ranks, count].
template <sendable T> [[nodiscard]] constexpr request all_to_all(const T* sent, T* received, integer count) {
    return {.kind = operation::all_to_all, .format = element_of<T>, .input = sent, .output = received, .count = count};
}

/// Parts of any length, in elements, with the place of each rank's part in the buffers; the spans have an entry a rank.
/// What a rank sends to another must be what that one expects, else the job ends with an error that names both.
template <sendable T>
[[nodiscard]] constexpr request all_to_all(const T* sent, std::span<const integer> send_counts,
                                           std::span<const integer> send_offsets, T* received,
                                           std::span<const integer> receive_counts,
                                           std::span<const integer> receive_offsets) {
    return {.kind = operation::all_to_all,
            .format = element_of<T>,
            .input = sent,
            .output = received,
            .send_counts = send_counts,
            .send_offsets = send_offsets,
            .receive_counts = receive_counts,
            .receive_offsets = receive_offsets};
}

}  // namespace fathom::comm
