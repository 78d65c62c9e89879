// How many tokens each expert got in the last step, layer by layer: what shows whether routing is balanced, and what
// placements of experts are made of.
#pragma once

#include <algorithm>
#include <fathom/comm/all_reduce.hpp>
#include <fathom/nn/parameter.hpp>
#include <fathom/parallel/expert_placement.hpp>
#include <type_traits>
#include <vector>

namespace fathom::train {

/// The loads of one layer's experts, over all ranks.
struct expert_load {
    integer layer = 0;            // modules of multi-token prediction come after the last block
    std::vector<integer> tokens;  // tokens[experts], of those that a capacity does not drop

    [[nodiscard]] integer total() const {
        integer sum = 0;
        for (const integer n : tokens) sum += n;
        return sum;
    }
    /// How much more than the mean the busiest expert got: 0 is balanced (MaxVio of "Auxiliary-loss-free load
    /// balancing", 2024). 0 without any load.
    [[nodiscard]] double max_violation() const {
        const integer sum = total();
        if (sum == 0) return 0;
        const double mean = static_cast<double>(sum) / static_cast<double>(tokens.size());
        return static_cast<double>(*std::max_element(tokens.begin(), tokens.end())) / mean - 1;
    }
    /// Copies of the experts for such loads. Errors: those of place_experts.
    [[nodiscard]] expert_placement placement(const expert_places& places) const {
        const std::vector<double> loads(tokens.begin(), tokens.end());
        return place_experts(loads, places);
    }
};

/// The loads of all layers in the last step or evaluation, the same on every rank. All ranks call it together.
template <class Engine> std::vector<expert_load> expert_loads(Engine& engine) {
    const auto& model = engine.model();
    const auto layers = static_cast<std::size_t>(model.layers() + model.of.num_nextn_predict_layers);
    integer experts = 0;
    const auto each = [&](auto&& call) {
        model.each_buffer(&engine.memory().buffers, [&](auto& view, const nn::storage& facts, auto...) {
            if constexpr (std::is_same_v<std::remove_cvref_t<decltype(*view.data)>, integer>)
                call(static_cast<std::size_t>(facts.layer), view);
        });
    };
    each([&](std::size_t, const auto& load) { experts = load.size(); });
    const auto& links = engine.links();
    links.pipeline.run(comm::all_reduce(&experts, 1, comm::reduction::max).from("numbers of experts"));
    const auto wide = static_cast<std::size_t>(experts);
    std::vector<integer> all(layers * wide, -1);  // -1: a layer of another stage, or without experts
    each([&](std::size_t layer, const auto& load) {
        std::copy_n(load.data, load.size(), all.begin() + static_cast<std::ptrdiff_t>(layer * wide));
    });
    if (!all.empty())
        links.pipeline.run(
            comm::all_reduce(all.data(), static_cast<integer>(all.size()), comm::reduction::max).from("loads"));
    std::vector<expert_load> loads;
    for (std::size_t layer = 0; experts > 0 && layer < layers; ++layer) {
        const auto first = all.begin() + static_cast<std::ptrdiff_t>(layer * wide);
        if (*first >= 0) loads.push_back({static_cast<integer>(layer), {first, first + experts}});
    }
    return loads;
}

}  // namespace fathom::train
