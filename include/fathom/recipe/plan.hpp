// A recipe lowered to numbers before anything runs: what each rank holds, how long, and what a step computes.
#pragma once

#include <array>
#include <fathom/core/bytes.hpp>
#include <fathom/core/error.hpp>
#include <fathom/models/share.hpp>
#include <fathom/parallel/schedule/at.hpp>
#include <fathom/recipe/rank_memory.hpp>
#include <fathom/recipe/training.hpp>
#include <string>
#include <utility>

namespace fathom {

/// Threads that need scratch memory: the host's bytes are a function of it.
template <integer N> struct host_workers { static constexpr integer value = N; };
/// Micro-batches of a step: what a pipeline keeps under way is a function of them.
template <integer N> struct micro_batches { static constexpr integer value = N; };

namespace planning {

/// Everything that is known before a run.
struct plan {
    arena_log memory;                  // what each rank holds, in order
    integer bytes = 0;                 // of the arena
    integer scratch_bytes = 0;         // of which one worker's: more workers take as much more each
    integer parameters = 0;            // trained ones and router biases, as published counts have them
    integer activated_parameters = 0;  // of which one token uses, embedding and head included
    integer embedding_parameters = 0;
    double flops = 0;  // of one micro-batch, forward and backward
};

/// The recipe's transformer, whole: the same type for all recipes of the same kinds of blocks and formats, whatever
/// their degrees.
template <class Recipe> constexpr auto transformer_of() {
    return models::chosen(Recipe::model::family::template transformer<typename Recipe::numbers::weights, Recipe::split>(
                              Recipe::model::config(), Recipe::again),
                          Recipe::choices);
}

/// Experts of a layer that see one token; 1 for what every token passes.
template <class Layer> constexpr integer experts_per_token(const Layer& layer) {
    if constexpr (requires { layer.of.mlp.router.top_k; })
        return layer.of.mlp.router.top_k;
    else
        return 1;
}

/// Counts the parameters of a model over its layers' own tensors; those of multi-token prediction are left out, as
/// published counts do.
template <class Transformer> constexpr void count_parameters(const Transformer& model, plan& p) {
    const auto count = [&p](const nn::storage& facts, integer layers, integer chosen) {
        const integer stacked = facts.parts[0].count;
        p.parameters += layers * facts.size();
        p.activated_parameters += layers * (stacked > 1 ? facts.size() / stacked * chosen : facts.size());
    };
    auto outside = model;
    outside.of.num_nextn_predict_layers = 0;
    std::apply([](auto&... part) { ((part.count = 0), ...); }, outside.segments);
    outside.template each_parameter<float>(nullptr,
                                           [&](auto&, const nn::storage& facts, auto...) { count(facts, 1, 1); });
    model.each_segment([&](const auto& part, auto) {
        using layer = std::remove_cvref_t<decltype(part.layer)>;
        typename layer::template parameters<float> parameters{};
        typename layer::buffers buffers{};
        part.layer.each_parameter(parameters, [&](auto&, const nn::storage& facts, auto...) {
            count(facts, part.count, experts_per_token(part.layer));
        });
        part.layer.each_buffer(buffers, [&](auto&, const nn::storage& facts, auto...) {
            if (facts.parts[0].name != nullptr) count(facts, part.count, 1);
        });
    });
    p.embedding_parameters = model.of.vocab_size * model.of.hidden_size;
}

/// The plan of a rank that holds `model`, a share of `whole` or all of it.
template <class Transformer>
constexpr plan lower(const Transformer& whole, const rank_shape& shape, const Transformer& model) {
    plan p;
    arena counted;
    counted.log_to(&p.memory);
    carve(model, counted, shape, static_cast<rank_memory<Transformer>*>(nullptr));
    p.bytes = counted.peak();
    p.scratch_bytes = round_up(model.scratch(extents_here(model, shape.batch)), arena::alignment);
    p.flops = whole.flops(shape.batch);
    count_parameters(whole, p);
    return p;
}
template <class Transformer> constexpr plan lower(const Transformer& model, const rank_shape& shape) {
    return lower(model, shape, model);
}

/// What is left to the start and changes a rank's memory: replicas, and the micro-batches of a step (0: twice the ranks
/// of the pipeline).
template <integer Replicas = 1, integer MicroBatches = 0> struct start_of {};

/// Micro-batches of a step; where nothing was said, those of a table of one's own, or twice the ranks of the pipeline.
template <class Recipe, integer Replicas, integer MicroBatches>
constexpr integer micro_batches_of(const start_of<Replicas, MicroBatches>&) {
    if constexpr (MicroBatches > 0)
        return MicroBatches;
    else if constexpr (requires { Recipe::pipeline_schedule::micro_batches; })
        return Recipe::pipeline_schedule::micro_batches;
    else
        return 2 * Recipe::layout::pp_degree;
}
/// The schedule of a recipe whose ranks split the model.
template <class Recipe, class Start>
using schedule_at =
    schedule::at<typename Recipe::pipeline_schedule, Recipe::layout::pp_degree, micro_batches_of<Recipe>(Start{})>;

/// What of a recipe and a start is its layout, as numbers: one type for all recipes.
struct planned_layout {
    degrees mesh{};
    integer zero = 0, shard_within = 0;
    nn::extents batch{};                       // of a micro-batch, in whole sequences
    integer micro_batches = 1;                 // of a replica's step
    models::layers_of_stage layers = nullptr;  // of a pipeline
};
template <class Recipe, integer Replicas, integer MicroBatches>
constexpr planned_layout layout_of(const start_of<Replicas, MicroBatches>& start) {
    return {.mesh = degrees_of<typename Recipe::layout>(Replicas),
            .zero = Recipe::zero_stage,
            .shard_within = Recipe::shard_ranks,
            .batch = Recipe::batch,
            .micro_batches = micro_batches_of<Recipe>(start),
            .layers = &Recipe::layers_of_stage};
}

/// A rank that is not there yet: its place, and what of the model it will hold in memory of that shape, with one
/// worker.
template <class Transformer> struct planned_rank {
    rank_place at;
    rank_shape shape;
    Transformer share;
};
/// The rank at a place in the pipeline. All other ranks of its stage have as much, or less where multi-token prediction
/// takes the end of their sequences. `table`: the schedule, where ranks split the model.
template <class Transformer>
constexpr planned_rank<Transformer> rank_of(const Transformer& whole, const planned_layout& layout,
                                            const schedule::table* table, integer pipeline_rank) {
    planned_rank<Transformer> made{.at = {.pp = pipeline_rank, .cp = layout.mesh.cp - 1},
                                   .shape = {.batch = layout.batch, .workers = 1},
                                   .share = whole};
    made.shape.shards = sharding{layout.mesh, layout.zero, layout.shard_within};
    if constexpr (Transformer::split) {
        const auto rank = static_cast<int>(pipeline_rank);
        made.shape.slots = slots_of(*table, rank);
        made.share =
            models::share_of_model(whole, layout.mesh, made.at,
                                   models::stages_of(table->shape, rank, layout.layers, whole.layers()), layout.batch);
    }
    return made;
}
/// The same of a recipe, at compile time.
template <class Recipe, class Start> constexpr auto rank_at(const Start& start, integer pipeline_rank) {
    constexpr auto whole = transformer_of<Recipe>();
    if constexpr (Recipe::split)
        return rank_of(whole, layout_of<Recipe>(start), &schedule::table_of<schedule_at<Recipe, Start>>, pipeline_rank);
    else
        return rank_of(whole, layout_of<Recipe>(start), nullptr, pipeline_rank);
}
/// The plan of that rank.
template <class Recipe, class Start> constexpr plan plan_at(const Start& start, integer pipeline_rank) {
    const auto rank = rank_at<Recipe>(start, pipeline_rank);
    return lower(transformer_of<Recipe>(), rank.shape, rank.share);
}
/// Its bytes, as a constant of its own, so that many ranks stay within compilers' limits.
template <class Recipe, class Start, integer Rank>
inline constexpr integer bytes_of_rank = [] {
    const auto rank = rank_at<Recipe>(Start{}, Rank);
    return bytes_of_share(rank.share, rank.shape);
}();

/// The place of the rank that needs most.
template <class Recipe, class Start> constexpr integer largest_rank() {
    if constexpr (Recipe::layout::pp_degree == 1) {
        return 0;
    } else {
        return []<integer... Rank>(std::integer_sequence<integer, Rank...>) {
            const integer bytes[] = {bytes_of_rank<Recipe, Start, Rank>...};
            integer most = 0;
            for (integer rank = 1; rank < Recipe::layout::pp_degree; ++rank)
                if (bytes[rank] > bytes[most]) most = rank;
            return most;
        }
        (std::make_integer_sequence<integer, Recipe::layout::pp_degree>{});
    }
}

/// The plan of a recipe with one worker, of the rank that needs most: evaluated once, whoever asks.
template <class Recipe, class Start = start_of<>>
inline constexpr plan plan_of_one = plan_at<Recipe>(Start{}, largest_rank<Recipe, Start>());

/// The plan of a recipe with that many workers.
template <class Recipe> constexpr plan plan_of(integer workers = 4) {
    plan p = plan_of_one<Recipe>;
    arena_item& scratch = p.memory.items[static_cast<std::size_t>(p.memory.count - 1)];
    scratch.count = workers;
    scratch.bytes += (workers - 1) * p.scratch_bytes;
    p.bytes += (workers - 1) * p.scratch_bytes;
    return p;
}
/// Bytes of that plan.
template <class Recipe, class Start = start_of<>> constexpr integer bytes_of(integer workers = 4) {
    return plan_of_one<Recipe, Start>.bytes + (workers - 1) * plan_of_one<Recipe, Start>.scratch_bytes;
}

/// Bytes of one rank's arena, of the rank that needs most: a number, and a function of what the start decides.
template <class Recipe> struct bytes_function {
    consteval operator integer() const {
        return bytes_of<Recipe>();
    }  // NOLINT(google-explicit-constructor): it reads as the number
    template <integer N> consteval integer operator()(host_workers<N>) const { return bytes_of<Recipe>(N); }
    template <integer N> consteval integer operator()(dp<N>) const { return bytes_of<Recipe, start_of<N>>(); }
    template <integer N, integer M> consteval integer operator()(dp<N>, micro_batches<M>) const {
        return bytes_of<Recipe, start_of<N, M>>();
    }
    template <integer N, integer M, integer W>
    consteval integer operator()(dp<N>, micro_batches<M>, host_workers<W>) const {
        return bytes_of<Recipe, start_of<N, M>>(W);
    }
};

}  // namespace planning

/// Bytes that Fathom holds on each rank: static_assert(bytes_per_rank<recipe> <= 2_GiB), of host_workers<N>{} threads
/// (4 when not said), or on dp<N>{} replicas (1) with micro_batches<N>{} a step (twice the ranks of the pipeline).
template <class Recipe> inline constexpr planning::bytes_function<Recipe> bytes_per_rank{};

/// Parameters of a described model, router biases included, those of multi-token prediction left out.
template <class Model> consteval integer parameters_of() {
    constexpr auto model = Model::family::template transformer<float>(Model::config());
    planning::plan p;
    planning::count_parameters(model, p);
    return p.parameters;
}
/// Of which one token uses; embedding and head can be left out, as sources differ.
template <class Model> consteval integer activated_parameters_of(bool with_embedding = true, bool with_head = true) {
    constexpr auto model = Model::family::template transformer<float>(Model::config());
    planning::plan p;
    planning::count_parameters(model, p);
    // A tied embedding is the head, too: it is left out when both are.
    const bool tied = model.of.tie_word_embeddings;
    return p.activated_parameters - (with_embedding || (tied && with_head) ? 0 : p.embedding_parameters) -
           (with_head || tied ? 0 : p.embedding_parameters);
}

}  // namespace fathom
