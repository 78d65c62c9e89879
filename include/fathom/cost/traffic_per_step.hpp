// The traffic of a recipe's ranks as a constant, so that a static_assert can hold a layout to it.
#pragma once

#include <fathom/cost/traffic_of.hpp>
#include <fathom/recipe/plan.hpp>

namespace fathom {

namespace cost {

/// What the first tensor rank at a place in the pipeline hands to others in a step with a balance loss; no other rank
/// of its stage hands over more. `table` as planning::rank_of has it.
template <class Transformer>
constexpr traffic traffic_at(const Transformer& whole, const planning::planned_layout& layout,
                             const schedule::table* table, integer pipeline_rank) {
    const auto rank = planning::rank_of(whole, layout, table, pipeline_rank);
    return traffic_of(rank.share,
                      {.mesh = layout.mesh,
                       .at = rank.at,
                       .shards = rank.shape.shards,
                       .batch = layout.batch,
                       .micro_batches = layout.micro_batches},
                      table);
}
/// Of the rank that hands over most when experts have even loads.
template <class Transformer>
constexpr traffic largest_traffic(const Transformer& whole, const planning::planned_layout& layout,
                                  const schedule::table* table) {
    traffic most;
    for (integer rank = 0; rank < layout.mesh.pp; ++rank)
        if (const traffic t = traffic_at(whole, layout, table, rank); t.even().total() > most.even().total()) most = t;
    return most;
}

template <class Recipe> struct traffic_function {
    template <integer N, integer M> constexpr traffic operator()(dp<N>, micro_batches<M>) const {
        using start = planning::start_of<N, M>;
        constexpr auto whole = planning::transformer_of<Recipe>();
        constexpr planning::planned_layout layout = planning::layout_of<Recipe>(start{});
        if constexpr (Recipe::split)
            return largest_traffic(whole, layout, &schedule::table_of<planning::schedule_at<Recipe, start>>);
        else
            return largest_traffic(whole, layout, nullptr);
    }
};

}  // namespace cost

/// What the rank that hands over most hands to operations between ranks in a step of M micro-batches on N replicas:
/// static_assert(traffic_per_step<recipe>(dp<8>{}, micro_batches<16>{}).even().total() <= 10_GiB).
template <class Recipe> inline constexpr cost::traffic_function<Recipe> traffic_per_step{};

}  // namespace fathom
