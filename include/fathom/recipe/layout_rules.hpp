// Whether a model can be laid out as a mesh says: what must divide, and which stages a pipeline has.
#pragma once

#include <fathom/models/config.hpp>
#include <fathom/models/words.hpp>
#include <fathom/parallel/degrees.hpp>
#include <fathom/parallel/schedule/shape.hpp>
#include <fathom/parallel/stages.hpp>
#include <type_traits>

namespace fathom {

namespace detail {

/// A pipeline schedule by its word.
template <class Word>
concept is_schedule = requires {
    Word::chunks;
    Word::way;
    Word::name;
};

}  // namespace detail

namespace rule {

/// The degrees of a mesh, with one replica where the start decides; of one rank where there is no mesh.
template <class Mesh> struct layout_of { static constexpr degrees value{}; };
template <class Mesh>
requires requires { Mesh::order; }
struct layout_of<Mesh> {
    static constexpr degrees value = degrees_of<Mesh>();
};

/// Stages that a micro-batch passes.
template <class Mesh, class Schedule>
inline constexpr integer stage_count = layout_of<Mesh>::value.pp*(Schedule::way == schedule::route::two_way
                                                                      ? 1
                                                                      : Schedule::chunks);

/// Layers as stages count them: the blocks, the embedding, the head and each module of multi-token prediction.
template <class Model> constexpr integer staged_layers() {
    return Model::config().num_hidden_layers + 2 + Model::config().num_nextn_predict_layers;
}

/// The layers of each stage. A pipeline of one stage has them all.
template <class Model, class Mesh, class Schedule, class Stages>
struct stages_of_model : std::conditional_t<(stage_count<Mesh, Schedule> > 1 || Stages::count > 0),
                                            stage_layers<Stages, staged_layers<Model>(), stage_count<Mesh, Schedule>>,
                                            stage_layers<stages<>, staged_layers<Model>(), 1>> {};

template <class Heads, class Ranks> struct heads_divide_over_tensor_ranks {
    static_assert(Heads::value % Ranks::value == 0,
                  "fathom: attention heads must divide evenly over the tensor axis. fix: pick tp<N> where N divides "
                  "num_attention_heads.");
};
template <class Heads, class Ranks> struct key_value_heads_divide_over_tensor_ranks {
    static_assert(
        Heads::value % Ranks::value == 0 || Ranks::value % Heads::value == 0,
        "fathom: key-value heads must divide over the tensor axis, or be shared evenly by it. fix: pick tp<N> "
        "where N divides num_key_value_heads or is a multiple of it.");
};
template <class Width, class Ranks> struct intermediate_size_divides_over_tensor_ranks {
    static_assert(Width::value % Ranks::value == 0,
                  "fathom: the width of dense layers must divide evenly over the tensor axis. fix: pick tp<N> where N "
                  "divides intermediate_size.");
};
template <class Size, class Ranks> struct vocabulary_divides_over_tensor_ranks {
    static_assert(Size::value % Ranks::value == 0,
                  "fathom: the vocabulary must divide evenly over the tensor axis. fix: pick tp<N> where N divides "
                  "vocab_size, or raise vocab_size to a multiple of it.");
};
template <class Experts, class Ranks> struct routed_experts_divide_over_expert_ranks {
    static_assert(Experts::value % Ranks::value == 0,
                  "fathom: routed experts must divide evenly over the expert axis. fix: pick ep<N> where N divides "
                  "n_routed_experts.");
};
template <class Width, class Ranks> struct experts_width_divides_over_expert_tensor_ranks {
    static_assert(Width::value % Ranks::value == 0,
                  "fathom: the width of an expert must divide evenly over the expert-tensor axis. fix: pick etp<N> "
                  "where N divides moe_intermediate_size.");
};
template <bool Any, class Experts, class ExpertTensor> struct expert_axes_have_experts {
    static_assert(Any || (Experts::value == 1 && ExpertTensor::value == 1),
                  "fathom: the mesh splits experts and the model has none. fix: leave ep<N> and etp<N> out of it.");
};
template <class Length, class Ranks> struct sequence_divides_over_context_ranks {
    static_assert(Ranks::value == 1 || Length::value % (2 * Ranks::value) == 0,
                  "fathom: sequences must divide evenly over the context axis. fix: pick sequence_length<N> as a "
                  "multiple of twice cp<N>: each rank has an early and a late part.");
};
template <class Schedule, class Ranks> struct both_ends_have_a_rank {
    static_assert(Schedule::way != schedule::route::two_way || (Ranks::value % 2 == 0 && Ranks::value > 1),
                  "fathom: DualPipe is fed from both ends. fix: pick an even number of ranks for pp<N>.");
};
template <class Schedule, class Ranks> struct table_has_the_ranks_of_the_pipeline {
    static constexpr bool holds() {
        if constexpr (requires { Schedule::ranks; })
            return Schedule::ranks == Ranks::value;
        else
            return true;
    }
    static_assert(holds(),
                  "fathom: a table of your own is for other ranks. fix: give its shape as many ranks as pp<N> has.");
};
/// What reads the head's normed states stays with it.
template <class Last, class Depths> struct predictions_stay_with_the_head {
    static_assert(Last::value > Depths::value,
                  "fathom: the last stage must hold the head and every module of multi-token prediction. fix: give the "
                  "last number of stages<...> at least 1 + num_nextn_predict_layers.");
};

template <class Model, class Mesh, class Length, class Schedule, class Stages, bool = layout_of<Mesh>::value.split(),
          class = void>
struct model_fits_the_mesh {};
template <class Model, class Mesh, class Length, class Schedule, class Stages>
struct model_fits_the_mesh<Model, Mesh, Length, Schedule, Stages, true, std::void_t<decltype(Model::config())>>
    : heads_divide_over_tensor_ranks<num_attention_heads<Model::config().num_attention_heads>,
                                     tp<layout_of<Mesh>::value.tp>>,
      key_value_heads_divide_over_tensor_ranks<
          num_key_value_heads<Model::config().latent() ? 1 : Model::config().key_value_heads()>,
          tp<layout_of<Mesh>::value.tp>>,
      intermediate_size_divides_over_tensor_ranks<intermediate_size<Model::config().intermediate_size>,
                                                  tp<layout_of<Mesh>::value.tp>>,
      vocabulary_divides_over_tensor_ranks<vocab_size<Model::config().vocab_size>, tp<layout_of<Mesh>::value.tp>>,
      routed_experts_divide_over_expert_ranks<n_routed_experts<Model::config().n_routed_experts>,
                                              ep<layout_of<Mesh>::value.ep>>,
      experts_width_divides_over_expert_tensor_ranks<moe_intermediate_size<Model::config().moe_intermediate_size>,
                                                     etp<layout_of<Mesh>::value.etp>>,
      expert_axes_have_experts<(Model::config().n_routed_experts > 0), ep<layout_of<Mesh>::value.ep>,
                               etp<layout_of<Mesh>::value.etp>>,
      sequence_divides_over_context_ranks<Length, cp<layout_of<Mesh>::value.cp>>,
      both_ends_have_a_rank<Schedule, pp<layout_of<Mesh>::value.pp>>,
      table_has_the_ranks_of_the_pipeline<Schedule, pp<layout_of<Mesh>::value.pp>>,
      predictions_stay_with_the_head<
          layers<stages_of_model<Model, Mesh, Schedule, Stages>::of(stage_count<Mesh, Schedule> - 1).count>,
          num_nextn_predict_layers<Model::config().num_nextn_predict_layers>> {};

}  // namespace rule
}  // namespace fathom
