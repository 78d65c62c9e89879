// Everything that a rank holds, carved from its arena in one order: run at compile time this is the plan, at start it
// is the memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fathom/models/transformer.hpp>
#include <fathom/nn/parameter.hpp>
#include <fathom/optim/gradient_norm.hpp>
#include <fathom/optim/step_state.hpp>
#include <fathom/tensor/arena.hpp>
#include <type_traits>
#include <vector>

namespace fathom::planning {

/// Storages start at multiples of this many numbers, so that they start at a cache line in every format.
inline constexpr integer storage_alignment = 32;

/// The flat numbers of all parameters in one state, with its place in the arena.
template <class E> struct flat {
    E* data = nullptr;
    integer count = 0;
};

/// What may differ between ranks and starts, though not within a step.
struct rank_shape {
    nn::extents batch;    // the most that a micro-batch holds
    integer workers = 4;  // threads that need scratch
    bool trains = true;   // gradients, moments, and what backward needs
};

/// The memory of one rank: Transformer is a models::transformer<T, Blocks...>.
template <class Transformer> struct rank_memory {
    using A = typename Transformer::A;
    using T = typename Transformer::number;

    flat<T> weights;
    flat<A> master, gradients, first_moments, second_moments;
    typename Transformer::template parameters<T> weight_views;
    typename Transformer::template parameters<A> master_views, gradient_views, first_moment_views, second_moment_views;
    typename Transformer::buffers buffers;
    optim::step_state* state = nullptr;
    double* squares = nullptr;          // of each storage's gradient
    double* square_partials = nullptr;  // of the pieces of one
    matrix<A> cosines, sines;
    std::vector<models::depth_inputs> inputs;
    integer activations_at = 0;  // where the pieces that depend on a micro-batch's shape begin
    typename Transformer::saved saved;
    typename Transformer::deferred deferred;
    typename Transformer::workspace workspace;
    std::byte* scratch = nullptr;
    integer scratch_bytes = 0;
};

/// Numbers in all parameters, with the gaps that alignment leaves.
template <class Transformer> constexpr integer flat_size(const Transformer& model) {
    integer n = 0;
    model.each_storage(
        [&](const nn::storage& facts, integer times) { n += times * round_up(facts.size(), storage_alignment); });
    return n;
}

/// Points the views of `parameters` into `data`, in the order of global indices.
template <class Transformer, class E>
void bind_views(const Transformer& model, typename Transformer::template parameters<E>& parameters, E* data) {
    model.resize(parameters);
    integer at = 0;
    model.template each_parameter<E>(&parameters, [&](auto& view, const nn::storage& facts, auto...) {
        view = facts.vector ? vector_view(data + at, facts.rows) : matrix<E>{data + at, facts.rows, facts.width};
        at += round_up(facts.size(), storage_alignment);
    });
}

/// Carves the part that depends on the shape of a micro-batch: again for every new shape, each within the bound.
template <class Transformer>
constexpr void carve_activations(const Transformer& model, arena& memory, nn::extents shape, bool trains,
                                 rank_memory<Transformer>* to) {
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
    model.keep(memory, shape, to != nullptr ? &to->saved : nullptr);
    if (trains) {
        model.defer(memory, shape, to != nullptr ? &to->deferred : nullptr);
        memory.mark("between input and weight gradients", lifetime::deferred);
    }
    model.work(memory, shape, to != nullptr ? &to->workspace : nullptr);
    memory.mark("inside one layer's call", lifetime::call);
}

/// Carves a rank's memory. With `to` null it only counts.
template <class Transformer>
constexpr void carve(const Transformer& model, arena& memory, const rank_shape& shape, rank_memory<Transformer>* to) {
    using A = typename Transformer::A;
    using T = typename rank_memory<Transformer>::T;
    const integer count = flat_size(model);
    auto take_flat = [&]<class E>(flat<E> rank_memory<Transformer>::*member) {
        flat<E> numbers{memory.take<E>(count), count};
        if (to != nullptr) to->*member = numbers;
    };
    take_flat(&rank_memory<Transformer>::weights);
    memory.mark("weights", lifetime::run);
    if (shape.trains) {
        if constexpr (!std::is_same_v<T, A>) {
            take_flat(&rank_memory<Transformer>::master);
            memory.mark("master weights", lifetime::run);
        } else if (to != nullptr) {
            to->master = to->weights;
        }
        take_flat(&rank_memory<Transformer>::first_moments);
        memory.mark("first moments", lifetime::run);
        take_flat(&rank_memory<Transformer>::second_moments);
        memory.mark("second moments", lifetime::run);
        take_flat(&rank_memory<Transformer>::gradients);
        memory.mark("gradients", lifetime::step);
    }
    if (to != nullptr) {
        bind_views(model, to->weight_views, to->weights.data);
        if (shape.trains) {
            bind_views(model, to->master_views, to->master.data);
            bind_views(model, to->gradient_views, to->gradients.data);
            bind_views(model, to->first_moment_views, to->first_moments.data);
            bind_views(model, to->second_moment_views, to->second_moments.data);
        }
        model.resize(to->buffers);
        model.resize(to->saved);
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

    integer storages = 0, largest = 0;
    model.each_storage([&](const nn::storage& facts, integer times) {
        storages += times;
        largest = std::max(largest, facts.size());
    });
    optim::step_state* state = memory.take<optim::step_state>(1);
    double* squares = memory.take<double>(storages);
    double* square_partials = memory.take<double>(pieces(largest, optim::squared_norm_chunk));
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
    carve_activations(model, memory, shape.batch, shape.trains, to);
    const integer scratch_bytes = round_up(model.scratch(shape.batch), arena::alignment);
    std::byte* scratch = memory.take<std::byte>(shape.workers * scratch_bytes);
    if (to != nullptr) {
        to->scratch = scratch;
        to->scratch_bytes = scratch_bytes;
    }
    memory.mark("scratch of workers", lifetime::call, 0, shape.workers);
}

}  // namespace fathom::planning
