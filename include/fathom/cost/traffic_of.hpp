// The traffic of a rank's step from its share of a model, at compile time or at start.
#pragma once

#include <array>
#include <fathom/cost/detail/layer_traffic.hpp>
#include <fathom/cost/detail/state_traffic.hpp>
#include <fathom/cost/traffic.hpp>
#include <fathom/recipe/rank_memory.hpp>

namespace fathom::cost {

/// What the traffic of a rank depends on beside its share of the model.
struct rank_step {
    degrees mesh{};
    rank_place at{};
    planning::sharding shards{};
    nn::extents batch{};        // of each micro-batch, in whole sequences
    integer micro_batches = 1;  // of a replica's step
    bool balances = true;       // the balance loss has a weight
};

/// The bytes that a rank hands to operations in a step with moving of weights, without evaluation. `share` is what the
/// rank holds; `table` its pipeline's schedule, which only a split model has.
template <class Transformer>
constexpr traffic traffic_of(const Transformer& share, const rank_step& step, const schedule::table* table = nullptr) {
    traffic sum;
    const bool mirrored = table != nullptr && table->shape.way == schedule::route::two_way;
    const auto rank = static_cast<int>(step.at.pp);
    if constexpr (Transformer::split) {
        const detail::layer_traffic<Transformer> layers{share, planning::extents_here(share, step.batch), step.balances,
                                                        sum};
        integer sends = 0;
        for (const schedule::action& a : table->of(rank)) sends += a.sends;
        sum.fixed.add(among::pipeline, comm::operation::exchange, sends * layers.stream() * layers.of_number);
        for (int chunk = 0; chunk < table->shape.chunks; ++chunk) {
            integer times = 0;
            for (int m = 0; m < table->shape.micro_batches; ++m) times += table->shape.has(rank, chunk, m) ? 1 : 0;
            layers.forward(chunk, times);
            layers.backward(chunk, times);
        }
    }
    detail::turns_by_segment<Transformer> turns{share};
    if (step.shards.zero >= 2) {
        detail::block_turns walk{share.held, share.layers(), step.shards};
        turns.any = walk.any();
        if (turns.any && table != nullptr) walk.walk(*table, rank, turns);
        if (turns.any && table == nullptr) walk.walk(step.micro_batches, turns);
    }
    const detail::state_traffic<Transformer> state{share, step.mesh, step.at, step.shards, mirrored, sum};
    state.parameters(turns);
    state.numbers();
    return sum;
}

}  // namespace fathom::cost
