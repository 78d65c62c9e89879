// Which layers a pipeline stage holds: evenly divided, or said one by one.
#pragma once

#include <array>
#include <fathom/core/bytes.hpp>

namespace fathom {

/// Layers [first, first + count).
struct layer_range {
    integer first = 0;
    integer count = 0;
    constexpr bool operator==(const layer_range&) const = default;
};

/// stages<8, 8, 7, 7>: the layers of each stage, in the order in which a micro-batch passes them. Embedding, head and
/// each module of multi-token prediction count as layers do. stages<> divides the layers evenly.
template <integer... Layers> struct stages {
    static constexpr integer count = sizeof...(Layers);
    static constexpr integer layers = (Layers + ... + 0);
    static constexpr std::array<integer, sizeof...(Layers)> each{Layers...};
};

/// Numbers as types, so that the notes after an error name them.
template <integer N> struct layers { static constexpr integer value = N; };
template <integer N> struct pipeline_stages { static constexpr integer value = N; };

namespace rule {

template <class Stages, class Layers> struct stages_sum_to_the_layers {
    static_assert(
        Stages::count == 0 || Stages::layers == Layers::value,
        "fathom: the stages do not sum to the layers. fix: let the numbers of stages<...> add up to the layers, "
        "with one each for the embedding, the head and every module of multi-token prediction.");
};
template <class Stages, class Count> struct every_stage_is_named {
    static_assert(Stages::count == 0 || Stages::count == Count::value,
                  "fathom: stages<...> names more or fewer stages than the pipeline has. fix: give a number for each "
                  "stage: pp times the chunks that a rank holds.");
};
template <class Stages> struct no_stage_is_empty {
    static_assert(
        [] {
            for (const integer n : Stages::each)
                if (n < 1) return false;
            return true;
        }(),
        "fathom: a stage has no layers. fix: give every stage of stages<...> at least 1, or use fewer.");
};
template <class Stages, class Layers, class Count> struct layers_divide_over_stages {
    static_assert(
        Stages::count != 0 || (Count::value > 0 && Layers::value % Count::value == 0),
        "fathom: the layers do not divide evenly over the pipeline's stages. fix: say stages<...>, one number a "
        "stage, or pick pp<N> so that its stages divide the layers.");
};

}  // namespace rule

/// How Layers are split over Count stages: stage_layers<stages<8, 8, 7, 7>, 30, 4>::of(1) is {8, 8}.
template <class Stages, integer Layers, integer Count>
struct stage_layers : rule::stages_sum_to_the_layers<Stages, layers<Layers>>,
                      rule::every_stage_is_named<Stages, pipeline_stages<Count>>,
                      rule::no_stage_is_empty<Stages>,
                      rule::layers_divide_over_stages<Stages, layers<Layers>, pipeline_stages<Count>> {
    /// The layers of a stage; none for a stage that is not there.
    static constexpr layer_range of(integer stage) {
        if (stage < 0 || stage >= Count) return {};
        if constexpr (Stages::count == 0) {
            return {stage * (Layers / Count), Layers / Count};
        } else {
            layer_range range;
            for (integer s = 0; s <= stage && s < Stages::count; ++s) {
                range.first += range.count;
                range.count = Stages::each[static_cast<std::size_t>(s)];
            }
            return range;
        }
    }
    /// The stage that holds a layer; -1 for a layer that is not there.
    static constexpr integer holder(integer layer) {
        for (integer stage = 0; stage < Count; ++stage)
            if (layer >= of(stage).first && layer < of(stage).first + of(stage).count) return stage;
        return -1;
    }
};

}  // namespace fathom
