// Where one layer's choice of experts is written down, or taken from: what lets two runs send every token to the same
// experts.
#pragma once

#include <cstdint>
#include <fathom/core/bytes.hpp>
#include <fathom/nn/micro_batch.hpp>

namespace fathom::nn {

/// Ids[sequences of the replica's batch, length, width], of which a layer uses the first top_k, ascending. Null: nobody
/// asks, or the router chooses.
struct layer_routes {
    std::int32_t* record = nullptr;
    const std::int32_t* follow = nullptr;
    integer length = 0, width = 0;

    /// Where the ids of a row of the residual stream begin.
    template <class A> [[nodiscard]] integer at(const micro_batch<A>& batch, integer row) const {
        const auto token = batch.token(row);
        return (token.sequence * length + token.place) * width;
    }
};

}  // namespace fathom::nn
