// The traffic of a recipe's ranks as a constant, so that a static_assert can hold a layout to it.
#pragma once

#include <fathom/cost/traffic_of.hpp>
#include <fathom/recipe/plan.hpp>

namespace fathom {

namespace cost {

/// What the first tensor rank at a place in the pipeline hands to others in a step with a balance loss; no other rank
/// of its stage hands over more.
template <class Recipe, class Start> constexpr traffic traffic_at(const Start& start, integer pipeline_rank) {
    const auto rank = planning::rank_of<Recipe>(start, pipeline_rank);
    const rank_step step{.mesh = rank.mesh,
                         .at = rank.at,
                         .shards = rank.shape.shards,
                         .batch = rank.shape.batch,
                         .micro_batches = planning::micro_batches_of<Recipe>(start)};
    if constexpr (Recipe::split)
        return traffic_of(rank.share, step, &schedule::table_of<planning::schedule_at<Recipe, Start>>);
    else
        return traffic_of(rank.share, step);
}
/// Of the rank that hands over most when experts have even loads.
template <class Recipe, class Start> constexpr traffic largest_traffic(const Start& start) {
    traffic most;
    for (integer rank = 0; rank < Recipe::layout::pp_degree; ++rank)
        if (const traffic t = traffic_at<Recipe>(start, rank); t.even().total() > most.even().total()) most = t;
    return most;
}

template <class Recipe> struct traffic_function {
    template <integer N, integer M> constexpr traffic operator()(dp<N>, micro_batches<M>) const {
        return largest_traffic<Recipe>(planning::start_of<N, M>{});
    }
};

}  // namespace cost

/// What the rank that hands over most hands to operations between ranks in a step of M micro-batches on N replicas:
/// static_assert(traffic_per_step<recipe>(dp<8>{}, micro_batches<16>{}).even().total() <= 10_GiB).
template <class Recipe> inline constexpr cost::traffic_function<Recipe> traffic_per_step{};

}  // namespace fathom
