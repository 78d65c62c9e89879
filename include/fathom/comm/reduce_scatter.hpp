// Every rank's numbers reduced, each rank keeping its part: gradients of sharded parameters, partial sums of tokens.
#pragma once

#include <fathom/comm/request.hpp>

namespace fathom::comm {

/// part[count] becomes the reduction over all ranks' whole[ranks, count] at this rank's row. `part` may be this rank's
/// row of `whole`.
template <reducible T>
[[nodiscard]] constexpr request reduce_scatter(const T* whole, T* part, integer count, reduction how = reduction::sum) {
    return {.kind = operation::reduce_scatter,
            .format = element_of<T>,
            .how = how,
            .input = whole,
            .output = part,
            .count = count};
}

}  // namespace fathom::comm
