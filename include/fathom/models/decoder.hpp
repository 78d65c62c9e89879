// A whole model over new tokens: the memory that generation needs, and one step of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fathom/models/transformer.hpp>
#include <fathom/nn/block_decoder.hpp>
#include <fathom/nn/grouped_query_decoder.hpp>
#include <fathom/nn/latent_decoder.hpp>
#include <tuple>
#include <utility>
#include <vector>

namespace fathom::models {

/// What generation is planned for.
struct decoder_shape {
    integer sequences = 1;  // texts at once
    integer capacity = 0;   // tokens of a text at most, its prompt included
    integer rows = 64;      // tokens that are worked on at once at most: of a prompt, or one of every text
    integer workers = 4;
};

template <class Transformer> struct decoder;

/// Embedding, blocks, final norm and head over new tokens. Modules of multi-token prediction take no part.
template <class T, class... Blocks> struct decoder<transformer<T, Blocks...>> {
    using model_type = transformer<T, Blocks...>;
    using A = accumulator_t<T>;
    using stream = tensor<T, axis::tokens, axis::hidden>;

    model_type of;

    /// What `carve` hands out. Caches are [sequences * capacity, cache_width], layer after layer.
    struct memory {
        std::vector<matrix<T>> caches;
        std::int32_t *ids = nullptr, *positions = nullptr, *sequences = nullptr;  // [rows]
        tensor<A, axis::tokens, axis::vocabulary> logits;                         // [sequences, vocab_size]
        integer steps_at = 0;                                                     // where what a step needs begins
        stream x, normed;
        matrix<A> inverse_rms;
        std::tuple<typename nn::decoder<Blocks>::workspace...> work;
        std::byte* scratch = nullptr;
        integer scratch_bytes = 0;
    };

    /// Bytes that a token of a text takes in all layers.
    [[nodiscard]] constexpr integer cache_bytes_per_token() const {
        integer width = 0;
        of.each_segment([&](const auto& part, auto) { width += part.count * decoder_of(part.layer).cache_width(); });
        return width * static_cast<integer>(sizeof(T));
    }
    /// Carves everything; with `to` null it only counts.
    constexpr void carve(arena& all, const decoder_shape& shape, memory* to) const {
        memory local;
        memory& m = to != nullptr ? *to : local;
        of.each_layer([&](const auto& layer, auto, integer, integer) {
            const auto cache = all.take<T>(shape.sequences * shape.capacity, decoder_of(layer).cache_width());
            if (to != nullptr) m.caches.push_back(cache);
        });
        m.ids = all.take<std::int32_t>(shape.rows);
        m.positions = all.take<std::int32_t>(shape.rows);
        m.sequences = all.take<std::int32_t>(shape.rows);
        m.logits = all.take<A>(shape.sequences, of.of.vocab_size);
        m.scratch_bytes = round_up(scratch(shape), arena::alignment);
        m.scratch = all.take<std::byte>(shape.workers * m.scratch_bytes);
        m.steps_at = all.used();
        carve_step(all, shape.rows, m);
    }
    /// Carves what a step over so many rows needs.
    constexpr void carve_step(arena& all, integer rows, memory& m) const {
        m.x = all.take<T>(rows, of.of.hidden_size);
        m.normed = all.take<T>(rows, of.of.hidden_size);
        m.inverse_rms = all.take<A>(1, rows);
        const integer start = all.used();
        integer end = start;
        of.each_segment([&](const auto& part, auto kind) {
            all.rewind(start);
            std::get<kind()>(m.work) = decoder_of(part.layer).work(all, rows);
            end = std::max(end, all.used());
        });
        all.rewind(end);
    }

    /// m.logits.row(i) = the logits after token m.x.rows - wanted + i, for the last `wanted` of the rows; m.ids,
    /// m.positions and m.sequences say which tokens they are, and `tokens` the rest.
    template <class Queue>
    void forward(Queue& queue, const nn::new_tokens<A>& tokens, const typename model_type::template parameters<T>& p,
                 typename model_type::buffers& b, memory& m, integer wanted) const {
        ops::embed<T>(queue, m.x, m.ids, p.embedding);
        of.each_layer([&](const auto& layer, auto kind, integer i, integer number) {
            const auto at = static_cast<std::size_t>(i);
            decoder_of(layer).forward(queue, tokens, std::get<kind()>(p.blocks)[at], std::get<kind()>(b.blocks)[at],
                                      m.x, m.caches[static_cast<std::size_t>(number)], std::get<kind()>(m.work));
        });
        const integer first = m.x.rows - wanted;
        const stream last{m.normed.rows_at(first, wanted)};
        ops::rms_norm<T>(queue, last, m.inverse_rms.data, m.x.rows_at(first, wanted), p.final_norm.data,
                         of.of.rms_norm_eps);
        nn::project(queue, tensor<A, axis::tokens, axis::vocabulary>{m.logits.rows_at(0, wanted)}, last, p.head);
    }

  private:
    template <class Layer> static constexpr nn::decoder<Layer> decoder_of(const Layer& layer) { return {layer}; }
    [[nodiscard]] constexpr integer scratch(const decoder_shape& shape) const {
        integer most = of.head().scratch();
        of.each_segment(
            [&](const auto& part, auto) { most = std::max(most, decoder_of(part.layer).scratch(shape.rows)); });
        return most;
    }
};

/// Bytes that a token takes in the caches of all layers: 70,272 for V3 in bf16.
template <class Transformer> constexpr integer cache_bytes_per_token(const Transformer& model) {
    return decoder<Transformer>{model}.cache_bytes_per_token();
}

}  // namespace fathom::models
