// Every rank's numbers reduced to one buffer that all ranks hold: gradients of copies, norms, counts.
#pragma once

#include <fathom/comm/request.hpp>

namespace fathom::comm {

/// data[count] becomes the reduction over all ranks' data, in place.
template <reducible T>
[[nodiscard]] constexpr request all_reduce(T* data, integer count, reduction how = reduction::sum) {
    return {.kind = operation::all_reduce,
            .format = element_of<T>,
            .how = how,
            .input = data,
            .output = data,
            .count = count};
}

}  // namespace fathom::comm
