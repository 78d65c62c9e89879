// A training step as one description: model, layout, precision, shape of a micro-batch, schedule, optimizer and what is
// recomputed.
#pragma once

#include <fathom/models/families.hpp>
#include <fathom/nn/micro_batch.hpp>
#include <fathom/optim/decay.hpp>
#include <fathom/parallel/degrees.hpp>
#include <fathom/parallel/schedule/own.hpp>
#include <fathom/parallel/stages.hpp>
#include <fathom/recipe/layout_rules.hpp>
#include <fathom/recipe/layout_words.hpp>
#include <fathom/recipe/precision.hpp>

namespace fathom {

/// The most tokens of a sequence; a batch may have fewer.
template <integer N> struct sequence_length { static constexpr integer value = N; };
/// The most sequences of a micro-batch; a batch may have fewer.
template <integer N> struct micro_batch { static constexpr integer value = N; };
/// Optimizers.
namespace optimizer {
/// AdamW; Groups says which parameters decay.
template <optim::decay Groups> struct adamw_with { static constexpr optim::decay decay = Groups; };
/// Decays matrices, not gains and biases.
using adamw = adamw_with<optim::decay::matrices>;
/// Decays every parameter.
using adamw_all = adamw_with<optim::decay::all>;
}  // namespace optimizer

/// What backward recomputes instead of keeping it: recompute<norms, up_projections, swiglu>, or recompute<blocks>.
struct norms {
    static constexpr void set(nn::recomputation& r) { r.norms = true; }
};
struct up_projections {
    static constexpr void set(nn::recomputation& r) { r.up_projections = true; }
};
struct swiglu {
    static constexpr void set(nn::recomputation& r) { r.swiglu = true; }
};
struct blocks {
    static constexpr void set(nn::recomputation& r) { r.blocks = true; }
};

/// A type that names something to recompute.
template <class Part>
concept recomputed_part = requires(nn::recomputation& r) {
    Part::set(r);
};

namespace rule {

template <class... Parts> struct only_recomputed_parts {
    static_assert((recomputed_part<Parts> && ...),
                  "fathom: recompute<> got a word that it does not know. fix: norms, up_projections and swiglu, or "
                  "blocks.");
};

}  // namespace rule

template <class... Parts> struct recompute : rule::only_recomputed_parts<Parts...> {
    static constexpr nn::recomputation value = [] {
        nn::recomputation r;
        const auto set = [&r]<class Part>(const Part*) {
            if constexpr (recomputed_part<Part>) Part::set(r);
        };
        (set(static_cast<const Parts*>(nullptr)), ...);
        return r;
    }();
};

namespace detail {

template <class T> struct describes_model : std::bool_constant < requires {
    typename T::family;
    T::config().vocab_size;
} > {};
template <class T> struct describes_mesh : std::bool_constant < requires { T::dp_degree; } > {};
template <class T> struct describes_precision : std::bool_constant < requires {
    typename T::weights;
    typename T::sums;
} > {};

/// Which word of training<> a type is, to tell foreign words and two uses of one.
template <class T> struct training_word { static constexpr int kind = 0; };
template <integer N> struct training_word<sequence_length<N>> { static constexpr int kind = 1; };
template <integer N> struct training_word<micro_batch<N>> { static constexpr int kind = 2; };
template <integer N> struct training_word<zero<N>> { static constexpr int kind = 4; };
template <integer N> struct training_word<shard_within<N>> { static constexpr int kind = 128; };
template <class Word>
requires(is_schedule<Word> || schedule::own_table<Word>) struct training_word<Word> {
    static constexpr int kind = 8;
};
template <integer... Layers> struct training_word<stages<Layers...>> { static constexpr int kind = 64; };
template <optim::decay D> struct training_word<optimizer::adamw_with<D>> { static constexpr int kind = 16; };
template <class... Parts> struct training_word<recompute<Parts...>> : rule::only_recomputed_parts<Parts...> {
    static constexpr int kind = 32;
};

template <class... Words> struct recompute_of { static constexpr nn::recomputation value{}; };
template <class... Parts, class... Words> struct recompute_of<recompute<Parts...>, Words...> : recompute<Parts...> {};
template <class First, class... Words> struct recompute_of<First, Words...> : recompute_of<Words...> {};

template <class... Words> struct schedule_of { using type = schedule::one_f_one_b; };
template <class First, class... Words> struct schedule_of<First, Words...> : schedule_of<Words...> {};
template <is_schedule First, class... Words> struct schedule_of<First, Words...> { using type = First; };
template <schedule::own_table First, class... Words> struct schedule_of<First, Words...> {
    using type = schedule::own<First>;
};

template <decimal R> struct training_word<expert_tokens<R>> : rule::expert_rows_are_reserved<expert_tokens<R>> {
    static constexpr int kind = 256;
};
template <decimal R> struct training_word<capacity_factor<R>> : rule::capacity_is_above_nothing<capacity_factor<R>> {
    static constexpr int kind = 512;
};
template <> struct training_word<context_ring> { static constexpr int kind = 1024; };

/// What a word chooses for ranks that split a model; most choose nothing.
template <class Word> constexpr void choose(models::share_choices& c) {
    if constexpr (requires { Word::set(c); }) Word::set(c);
}
template <class... Words>
inline constexpr bool any_choice = (requires(models::share_choices & c) { Words::set(c); } || ...);

template <class... Words> struct stages_of { using type = stages<>; };
template <integer... Layers, class... Words> struct stages_of<stages<Layers...>, Words...> {
    using type = stages<Layers...>;
};
template <class First, class... Words> struct stages_of<First, Words...> : stages_of<Words...> {};

template <class... Words> struct decay_of { static constexpr optim::decay value = optim::decay::matrices; };
template <optim::decay D, class... Words> struct decay_of<optimizer::adamw_with<D>, Words...> {
    static constexpr optim::decay value = D;
};
template <class First, class... Words> struct decay_of<First, Words...> : decay_of<Words...> {};

}  // namespace detail

namespace rule {

template <class Model> struct first_is_a_model {
    static_assert(detail::describes_model<Model>::value,
                  "fathom: training<> begins with a model. fix: derive one from deepseek_v3<...> or another family and "
                  "name it first.");
};
template <class Mesh> struct second_is_a_mesh {
    static_assert(
        detail::describes_mesh<Mesh>::value,
        "fathom: training<> names its layout second. fix: put mesh<...> after the model; mesh<> is one rank.");
};
template <class Precision> struct third_is_a_precision {
    static_assert(detail::describes_precision<Precision>::value,
                  "fathom: training<> names its number formats third. fix: put precision<weights<fp32>> (or bf16) "
                  "after the mesh.");
};
template <class... Words> struct only_training_words {
    static_assert(
        ((detail::training_word<Words>::kind != 0) && ...),
        "fathom: training<> got a word that it does not know. fix: sequence_length<N>, micro_batch<N>, "
        "schedule::..., stages<...>, optimizer::..., zero<N>, shard_within<N>, expert_tokens<R>, capacity_factor<R>, "
        "context_ring and recompute<...> come after the precision.");
    static_assert((detail::training_word<Words>::kind + ... + 0) == (detail::training_word<Words>::kind | ... | 0),
                  "fathom: a word of training<> is given twice. fix: keep one of the two.");
};
template <class Length, class Sequences> struct batch_is_not_empty {
    static_assert(Length::value > 0 && Sequences::value > 0,
                  "fathom: a micro-batch needs tokens. fix: give sequence_length<N> and micro_batch<N>, both above 0.");
};
template <class Length, integer Positions> struct sequence_fits_the_model {
    static_assert(Length::value <= Positions,
                  "fathom: a sequence is longer than the model has positions. fix: pick sequence_length<N> of at most "
                  "max_position_embeddings, or raise the latter.");
};
template <class Length, integer Depths> struct sequence_outlasts_prediction {
    static_assert(Length::value <= 0 || Length::value > Depths,
                  "fathom: a sequence is too short for multi-token prediction. fix: pick sequence_length<N> above "
                  "num_nextn_predict_layers.");
};
template <class Stage, integer Degree> struct sharding_has_ranks {
    static_assert(Stage::value >= 0 && Stage::value <= 3,
                  "fathom: ZeRO has stages 0 to 3. fix: pick zero<0>, zero<1>, zero<2> or zero<3>.");
    static_assert(Stage::value <= 0 || Stage::value > 3 || Degree != 1,
                  "fathom: ZeRO shards over data-parallel ranks and there is one. fix: write zero<0>, or give the mesh "
                  "dp<N> or dp<any>.");
};
template <class Within, class Stage, class Degree> struct shards_have_copies {
    static_assert(
        Within::value == 0 || Stage::value > 0,
        "fathom: shard_within<N> without anything to shard. fix: add zero<1>, zero<2> or zero<3>, or leave it "
        "out.");
    static_assert(Within::value == 0 || Stage::value <= 0 || Degree::value == any ||
                      (Within::value > 0 && Degree::value % Within::value == 0),
                  "fathom: ranks that shard must divide the data ranks. fix: pick shard_within<N> where N divides dp x "
                  "cp.");
};

/// The numbers of a description, or stand-ins where it is broken, so that one broken rule is one error.
template <class Model, bool = detail::describes_model<Model>::value> struct positions_of {
    static constexpr integer positions = 1 << 30;
    static constexpr integer depths = 0;
};
template <class Model> struct positions_of<Model, true> {
    static constexpr integer positions = Model::config().max_position_embeddings;
    static constexpr integer depths = Model::config().num_nextn_predict_layers;
};
template <class Mesh, bool = detail::describes_mesh<Mesh>::value> struct data_degree_of {
    static constexpr integer value = any;
};
template <class Mesh> struct data_degree_of<Mesh, true> {
    static constexpr integer value = Mesh::dp_degree == any ? any : Mesh::dp_degree * layout_of<Mesh>::value.cp;
};
/// Data ranks, as the notes after an error name them.
template <integer N> struct data_ranks { static constexpr integer value = N; };

}  // namespace rule

/// training<model, mesh, precision, words...>. The batch is looked for in the precision's place, too: one that is left
/// out is one broken rule.
template <class Model, class Mesh, class Precision, class... Words>
struct training
    : rule::first_is_a_model<Model>,
      rule::second_is_a_mesh<Mesh>,
      rule::third_is_a_precision<Precision>,
      rule::only_training_words<Words...>,
      rule::batch_is_not_empty<detail::word_of<sequence_length, 0, Precision, Words...>,
                               detail::word_of<micro_batch, 0, Precision, Words...>>,
      rule::sequence_fits_the_model<detail::word_of<sequence_length, 0, Precision, Words...>,
                                    rule::positions_of<Model>::positions>,
      rule::sequence_outlasts_prediction<detail::word_of<sequence_length, 0, Precision, Words...>,
                                         rule::positions_of<Model>::depths>,
      rule::sharding_has_ranks<detail::word_of<zero, 0, Words...>, rule::data_degree_of<Mesh>::value>,
      rule::shards_have_copies<detail::word_of<shard_within, 0, Words...>, detail::word_of<zero, 0, Words...>,
                               rule::data_ranks<rule::data_degree_of<Mesh>::value>>,
      rule::choice_has_ranks<Mesh, !detail::any_choice<Words...> || rule::layout_of<Mesh>::value.split()>,
      rule::model_fits_the_mesh<Model, Mesh, detail::word_of<sequence_length, 0, Precision, Words...>,
                                typename detail::schedule_of<Words...>::type,
                                typename detail::stages_of<Words...>::type> {
    using model = Model;
    using layout = Mesh;
    using numbers = Precision;
    static constexpr nn::extents batch{detail::word_of<micro_batch, 0, Words...>::value,
                                       detail::word_of<sequence_length, 0, Words...>::value};
    static constexpr nn::recomputation again = detail::recompute_of<Words...>::value;
    static constexpr optim::decay decay = detail::decay_of<Words...>::value;
    static constexpr integer dp_degree = rule::data_degree_of<Mesh>::value;  // or any
    static constexpr integer zero_stage = detail::word_of<zero, 0, Words...>::value;
    static constexpr integer shard_ranks = detail::word_of<shard_within, 0, Words...>::value;  // 0: all data ranks
    using pipeline_schedule = typename detail::schedule_of<Words...>::type;
    /// Whether ranks split the model or its sequences.
    static constexpr bool split = rule::layout_of<Mesh>::value.split();
    static constexpr models::share_choices choices = [] {
        models::share_choices c;
        (detail::choose<Words>(c), ...);
        return c;
    }();
    /// The layers of a pipeline stage, counted as stages<> does.
    static constexpr layer_range layers_of_stage(integer stage) {
        return rule::stages_of_model<Model, Mesh, pipeline_schedule, typename detail::stages_of<Words...>::type>::of(
            stage);
    }
};

}  // namespace fathom
