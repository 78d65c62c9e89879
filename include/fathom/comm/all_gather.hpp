// Every rank's part put together on all ranks: sharded parameters before use, tokens of a sequence.
#pragma once

#include <fathom/comm/request.hpp>

namespace fathom::comm {

/// whole[ranks, count] becomes all ranks' part[count]. `part` may be this rank's row of `whole`.
template <sendable T> [[nodiscard]] constexpr request all_gather(const T* part, T* whole, integer count) {
    return {.kind = operation::all_gather, .format = element_of<T>, .input = part, .output = whole, .count = count};
}

}  // namespace fathom::comm
