// Sends and receives between neighbours as one group, so that no order of them can deadlock: pipelines and rings.
#pragma once

#include <fathom/comm/request.hpp>

namespace fathom::comm {

/// data[count] goes to the rank `peer`. The send is done when the peer has taken it: nothing is buffered.
template <sendable T> [[nodiscard]] constexpr message send_to(integer peer, const T* data, integer count) {
    // One type holds both directions; what a send names is only read.
    return {peer, true, element_of<T>, const_cast<T*>(data), count};
}

/// data[count] comes from the rank `peer`.
template <sendable T> [[nodiscard]] constexpr message receive_from(integer peer, T* data, integer count) {
    return {peer, false, element_of<T>, data, count};
}

/// All messages progress together, and only with the ranks that they name. From one rank to another, sends meet
/// receives in the order in which both issued them; lengths and formats that differ end the job with an error that
/// names both.
[[nodiscard]] constexpr request exchange(std::span<const message> messages) {
    return {.kind = operation::exchange, .messages = messages};
}

}  // namespace fathom::comm
