// Routing as layers of experts do it: by the router, or as a record says.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fathom/nn/layer_routes.hpp>
#include <fathom/nn/micro_batch.hpp>
#include <fathom/ops/router.hpp>
#include <type_traits>

namespace fathom::nn {

/// ops::route of the rows that this rank has of the residual stream, with the ids of `routes` where it follows some; it
/// writes down the ids where it records them.
template <class A, class Queue>
void choose_experts(Queue& queue, const micro_batch<A>& batch, const ops::router_facts& facts,
                    const layer_routes& routes, matrix<const std::type_identity_t<A>> logits, const A* bias,
                    matrix<std::type_identity_t<A>> scores, matrix<std::int32_t> ids,
                    matrix<std::type_identity_t<A>> weights) {
    const integer top_k = facts.top_k;
    if (routes.follow != nullptr)
        queue.enqueue(1, [&](integer, int) {
            for (integer r = 0; r < ids.rows; ++r) std::copy_n(routes.follow + routes.at(batch, r), top_k, ids.row(r));
        });
    ops::route<A>(queue, facts, logits, bias, scores, ids, weights, routes.follow != nullptr);
    if (routes.record != nullptr)
        queue.enqueue(1, [&](integer, int) {
            for (integer r = 0; r < ids.rows; ++r) std::copy_n(ids.row(r), top_k, routes.record + routes.at(batch, r));
        });
}

}  // namespace fathom::nn
