// One rank's numbers on all ranks: what one rank read, drew or decided.
#pragma once

#include <fathom/comm/request.hpp>

namespace fathom::comm {

/// data[count] becomes what it is on the rank `root`.
template <sendable T> [[nodiscard]] constexpr request broadcast(T* data, integer count, integer root = 0) {
    return {.kind = operation::broadcast,
            .format = element_of<T>,
            .input = data,
            .output = data,
            .count = count,
            .root = root};
}

}  // namespace fathom::comm
