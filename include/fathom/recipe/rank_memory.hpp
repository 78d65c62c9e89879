// Everything that a rank holds, carved from its arena in one order: run at compile time this is the plan, at start it
// is the memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fathom/models/transformer.hpp>
#include <fathom/nn/parameter.hpp>
#include <fathom/optim/gradient_norm.hpp>
#include <fathom/optim/step_state.hpp>
#include <fathom/recipe/flat_layout.hpp>
#include <fathom/recipe/stage_slots.hpp>
#include <fathom/tensor/arena.hpp>
#include <type_traits>
#include <vector>

namespace fathom::planning {

/// The flat numbers of all parameters in one state, with its place in the arena.
template <class E> struct flat {
    E* data = nullptr;
    integer count = 0;
};

/// What may differ between ranks and starts, though not within a step.
struct rank_shape {
    nn::extents batch;    // the most that a micro-batch holds, of whole sequences
    integer workers = 4;  // threads that need scratch
    bool trains = true;   // gradients, moments, and what backward needs
    sharding shards{};
    stage_slots slots{};  // how many micro-batches are alive at once in a pipeline
};

/// Pieces whose shape follows the micro-batch that they are used for.
template <class Pieces> struct shaped {
    integer at = 0;     // where they begin in the arena
    nn::extents shape;  // for which they are carved
    Pieces of;
};

/// What a rank keeps of the micro-batches that are under way in one chunk of its stages.
template <class Transformer> struct chunk_memory {
    std::vector<shaped<typename Transformer::saved>> kept;
    std::vector<shaped<typename Transformer::deferred>> deferred;
};

/// The memory of one rank: Transformer is a models::transformer<T, Blocks...>.
template <class Transformer> struct rank_memory {
    using A = typename Transformer::A;
    using T = typename Transformer::number;

    flat_layout layout;
    flat<T> weights;
    flat<A> gradients;
    flat<A> master, first_moments, second_moments;  // of all parameters or, under ZeRO, of this rank's shards
    typename Transformer::template parameters<T> weight_views;
    typename Transformer::template parameters<A> gradient_views;
    typename Transformer::buffers buffers;
    optim::step_state* state = nullptr;
    double* squares = nullptr;          // of each part of the gradient
    double* square_partials = nullptr;  // of the pieces of a storage's
    matrix<A> cosines, sines;
    std::vector<models::depth_inputs> inputs;
    integer activations_at = 0;                       // where the pieces that depend on a micro-batch's shape begin
    typename Transformer::saved saved;                // of a whole model
    typename Transformer::deferred deferred;          // of a whole model
    std::vector<chunk_memory<Transformer>> chunks;    // of a split one
    std::vector<typename Transformer::stream> pipes;  // of a split one: gradients between stages
    typename Transformer::workspace workspace;
    integer workspace_at = 0;  // where it begins
    std::byte* scratch = nullptr;
    integer scratch_bytes = 0;
};

/// Points the views of `parameters` to their places in `data`: those that a member of placed_storage says.
template <class Transformer, class E>
void bind_views(const Transformer& model, const flat_layout& layout,
                typename Transformer::template parameters<E>& parameters, E* data, integer placed_storage::*place) {
    model.resize(parameters);
    std::size_t next = 0;
    model.template each_parameter<E>(&parameters, [&](auto& view, const nn::storage& facts, auto...) {
        E* at = data + layout.storages[next++].*place;
        view = facts.vector ? vector_view(at, facts.rows) : matrix<E>{at, facts.rows, facts.width};
    });
}

/// This rank's part of a micro-batch: all of it, or its places of every sequence.
template <class Transformer> constexpr nn::extents extents_here(const Transformer& model, nn::extents whole) {
    return {whole.sequences, whole.length / model.of.context.ranks};
}

/// Carves what the chunks of a pipeline stage keep of the micro-batches under way.
template <class Transformer>
constexpr void carve_chunks(const Transformer& model, arena& memory, nn::extents shape, const rank_shape& rank,
                            rank_memory<Transformer>* to) {
    for (integer c = 0; c < model.held.count; ++c) {
        const integer kept = rank.slots.kept[static_cast<std::size_t>(c)];
        const integer deferred = rank.trains ? rank.slots.deferred[static_cast<std::size_t>(c)] : 0;
        chunk_memory<Transformer>* chunk = to != nullptr ? &to->chunks[static_cast<std::size_t>(c)] : nullptr;
        const integer start = memory.used();
        for (integer i = 0; i < (chunk != nullptr ? kept : std::min<integer>(kept, 1)); ++i)
            if (chunk != nullptr) {
                auto& slot = chunk->kept[static_cast<std::size_t>(i)];
                slot.at = memory.used(), slot.shape = shape;
                model.keep(memory, shape, &slot.of, c);
            } else {
                model.keep(memory, shape, nullptr, c);
            }
        if (chunk == nullptr && kept > 1) {
            memory.skip((kept - 1) * (memory.used() - start));
            memory.mark("further micro-batches under way", lifetime::saved, 0, kept - 1);
        }
        for (integer i = 0; i < deferred; ++i)
            if (chunk != nullptr) {
                auto& slot = chunk->deferred[static_cast<std::size_t>(i)];
                slot.at = memory.used(), slot.shape = shape;
                model.defer(memory, shape, &slot.of, c, rank.slots.apart);
            } else {
                model.defer(memory, shape, nullptr, c, rank.slots.apart);
            }
        memory.mark("between input and weight gradients", lifetime::deferred, 0, deferred);
    }
    for (integer i = 0; i < (rank.trains ? rank.slots.gradients : 0); ++i) {
        const auto pipe = model.take_stream(memory, shape);
        if (to != nullptr) to->pipes[static_cast<std::size_t>(i)] = pipe;
    }
    memory.mark("gradients between stages", lifetime::call);
}

/// Carves the part that depends on the shape of a micro-batch: again for every new shape, each within the bound.
template <class Transformer>
constexpr void carve_activations(const Transformer& model, arena& memory, nn::extents whole, const rank_shape& rank,
                                 rank_memory<Transformer>* to) {
    const nn::extents shape = extents_here(model, whole);
    models::depth_inputs local;
    for (integer k = 0; k <= model.of.num_nextn_predict_layers; ++k) {
        const integer n = model.shorter(shape, k).tokens();
        models::depth_inputs& in = to != nullptr ? to->inputs[static_cast<std::size_t>(k)] : local;
        in.ids = memory.take<std::int32_t>(n);
        in.targets = memory.take<std::int32_t>(n);
        in.positions = memory.take<std::int32_t>(n);
        in.starts = memory.take<std::int32_t>(n);
    }
    memory.mark("inputs", lifetime::step);
    if constexpr (Transformer::split) {
        carve_chunks(model, memory, shape, rank, to);
    } else {
        model.keep(memory, shape, to != nullptr ? &to->saved : nullptr);
        if (rank.trains) {
            model.defer(memory, shape, to != nullptr ? &to->deferred : nullptr);
            memory.mark("between input and weight gradients", lifetime::deferred);
        }
    }
    if (to != nullptr) to->workspace_at = memory.used();
    model.work(memory, shape, to != nullptr ? &to->workspace : nullptr);
    memory.mark("inside one layer's call", lifetime::call);
}

/// Carves a rank's memory. With `to` null it only counts.
template <class Transformer>
constexpr void carve(const Transformer& model, arena& memory, const rank_shape& shape, rank_memory<Transformer>* to) {
    using A = typename Transformer::A;
    using T = typename rank_memory<Transformer>::T;
    const flat_sizes sizes = flat_sizes_of(model, shape.shards);
    auto take_flat = [&]<class E>(flat<E> rank_memory<Transformer>::*member, integer count) {
        flat<E> numbers{memory.take<E>(count), count};
        if (to != nullptr) to->*member = numbers;
    };
    // An array and its rooms lie one after the other: storages begin at cache lines in every format.
    auto take_array = [&]<class E>(flat<E> rank_memory<Transformer>::*member, const flat_array& size, const char* name,
                                   lifetime lives, const char* name_of_rooms) {
        take_flat(member, size.stays);
        memory.mark(name, lives);
        if (size.room == 0) return;
        memory.take<E>(sizes.rooms * size.room);
        memory.mark(name_of_rooms, lifetime::call, 0, sizes.rooms);
        if (to != nullptr) (to->*member).count = size.count(sizes.rooms);
    };
    take_array(&rank_memory<Transformer>::weights, sizes.weights, "weights", lifetime::run,
               "weights of the blocks that work");
    if (shape.trains) {
        if constexpr (!std::is_same_v<T, A>) {
            take_flat(&rank_memory<Transformer>::master, sizes.shards);
            memory.mark("master weights", lifetime::run);
        }
        take_flat(&rank_memory<Transformer>::first_moments, sizes.shards);
        memory.mark("first moments", lifetime::run);
        take_flat(&rank_memory<Transformer>::second_moments, sizes.shards);
        memory.mark("second moments", lifetime::run);
        take_array(&rank_memory<Transformer>::gradients, sizes.gradients, "gradients", lifetime::step,
                   "gradients of the blocks that work");
    }
    if (to != nullptr) {
        to->layout = flat_layout_of(model, shape.shards);
        bind_views(model, to->layout, to->weight_views, to->weights.data, &placed_storage::weights);
        if (shape.trains)
            bind_views(model, to->layout, to->gradient_views, to->gradients.data, &placed_storage::gradients);
        model.resize(to->buffers);
        if constexpr (Transformer::split) {
            to->chunks.resize(static_cast<std::size_t>(model.held.count));
            for (integer c = 0; c < model.held.count; ++c) {
                auto& chunk = to->chunks[static_cast<std::size_t>(c)];
                chunk.kept.resize(static_cast<std::size_t>(shape.slots.kept[static_cast<std::size_t>(c)]));
                for (auto& slot : chunk.kept) model.resize(slot.of, c);
                chunk.deferred.resize(static_cast<std::size_t>(shape.slots.deferred[static_cast<std::size_t>(c)]));
                for (auto& slot : chunk.deferred) model.resize(slot.of, c, shape.slots.apart);
            }
            to->pipes.resize(static_cast<std::size_t>(shape.slots.gradients));
        } else {
            model.resize(to->saved, 0);
            model.resize(to->deferred, 0, false);
        }
        to->inputs.resize(static_cast<std::size_t>(model.of.num_nextn_predict_layers + 1));
    }
    const auto take_buffer = [&](auto& view, const nn::storage& facts, auto...) {
        using E = std::remove_cvref_t<decltype(*view.data)>;
        view = memory.take<E>(1, facts.size());
    };
    if (to != nullptr)
        model.each_buffer(&to->buffers, take_buffer);
    else
        model.each_kind_of_buffers([&](auto& buffers, const auto& layer, integer times) {
            const integer start = memory.used();
            layer.each_buffer(buffers, take_buffer);
            memory.skip((times - 1) * (memory.used() - start));
        });
    memory.mark("router biases and loads", lifetime::run);

    optim::step_state* state = memory.take<optim::step_state>(1);
    double* squares = memory.take<double>(sizes.parts);
    double* square_partials = memory.take<double>(pieces(sizes.largest_storage, optim::squared_norm_chunk));
    const integer half = model.of.rope.dim / 2;
    const auto cosines = memory.take<A>(model.of.max_position_embeddings, half);
    const auto sines = memory.take<A>(model.of.max_position_embeddings, half);
    if (to != nullptr) {
        to->state = state;
        to->squares = squares;
        to->square_partials = square_partials;
        to->cosines = cosines;
        to->sines = sines;
        to->activations_at = memory.used();
    }
    memory.mark("step state and rotary tables", lifetime::run);
    carve_activations(model, memory, shape.batch, shape, to);
    const integer scratch_bytes = round_up(model.scratch(extents_here(model, shape.batch)), arena::alignment);
    std::byte* scratch = memory.take<std::byte>(shape.workers * scratch_bytes);
    if (to != nullptr) {
        to->scratch = scratch;
        to->scratch_bytes = scratch_bytes;
    }
    memory.mark("scratch of workers", lifetime::call, 0, shape.workers);
}

/// Bytes of a rank's memory.
template <class Transformer> constexpr integer bytes_of_share(const Transformer& model, const rank_shape& shape) {
    arena counted;
    carve(model, counted, shape, static_cast<rank_memory<Transformer>*>(nullptr));
    return counted.peak();
}

}  // namespace fathom::planning
