// A whole language model as numbers over kinds of blocks: what it holds, and one micro-batch forward and backward
// through it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <fathom/models/config.hpp>
#include <fathom/nn/block.hpp>
#include <fathom/nn/language_head.hpp>
#include <fathom/nn/multi_token_prediction.hpp>
#include <fathom/ops/rotary.hpp>
#include <tuple>
#include <utility>
#include <vector>

namespace fathom::models {

/// Sizes of a model outside its blocks, named as in a Hugging Face config.
struct transformer_facts {
    integer vocab_size = 0;
    integer hidden_size = 0;
    integer max_position_embeddings = 0;
    integer num_nextn_predict_layers = 0;
    double rms_norm_eps = 1e-6;
    double initializer_range = 0.006;
    bool tie_word_embeddings = false;
    ops::rope_facts rope{};
};

/// `count` equal blocks one after another. Layers are numbered from `first`.
template <class Block> struct segment {
    Block layer;
    integer first = 0;
    integer count = 0;
};

/// Weights of the terms of a step's loss. Means are over the tokens or sequences of the whole step, so they are known
/// before its first backward and do not depend on how the step is cut in micro-batches.
struct loss_weights {
    double token = 0;    // 1 / targets of the step that count
    double z = 0;        // coefficient of logsumexp^2, times `token`
    double balance = 0;  // alpha / sequences of the step
    static constexpr integer max_depths = max_prediction_depths;
    std::array<double, max_depths> mtp{};  // lambda / depths / targets of that depth that count
};

/// Sums over the micro-batches of a step: the loss is token * cross_entropy + z * z + sum mtp[k] * mtp[k] + balance
/// (weighted).
struct loss_terms {
    nn::loss_sums main;
    std::array<nn::loss_sums, loss_weights::max_depths> mtp;
    double balance = 0;
};

/// The inputs of a micro-batch for one depth: 0 is the main model, k > 0 a multi-token prediction module, whose
/// sequences are k tokens shorter. All are [sequences, length - k].
struct depth_inputs {
    std::int32_t* ids = nullptr;
    std::int32_t* targets = nullptr;
    std::int32_t* positions = nullptr;
    std::int32_t* starts = nullptr;
};

/// Embedding, blocks, final norm, head, and D modules of multi-token prediction made of the last kind of block.
template <class T, class... Blocks> struct transformer {
    using number = T;
    using A = accumulator_t<T>;
    using last_block = std::tuple_element_t<sizeof...(Blocks) - 1, std::tuple<Blocks...>>;
    using mtp_module = nn::multi_token_prediction<T, last_block>;
    using stream = tensor<T, axis::tokens, axis::hidden>;

    transformer_facts of;
    nn::recomputation again{};
    std::tuple<segment<Blocks>...> segments;

    template <class E> struct parameters {
        tensor<E, axis::vocabulary, axis::hidden> embedding;
        std::tuple<std::vector<typename Blocks::template parameters<E>>...> blocks;
        matrix<E> final_norm;
        tensor<E, axis::vocabulary, axis::hidden> head;  // the embedding itself when tied
        std::vector<typename mtp_module::template parameters<E>> mtp;
    };
    struct buffers {
        std::tuple<std::vector<typename Blocks::buffers>...> blocks;
        std::vector<typename last_block::buffers> mtp;
    };
    struct saved {
        stream embedded, normed;
        matrix<A> inverse_rms;
        std::tuple<std::vector<typename Blocks::saved>...> blocks;
        std::vector<typename mtp_module::saved> mtp;
    };
    struct deferred {
        std::tuple<typename Blocks::deferred...> blocks;
        std::array<typename mtp_module::deferred, loss_weights::max_depths> mtp;
    };
    struct workspace {
        stream g, dnormed;
        matrix<A> norm_partials;
        std::array<stream, loss_weights::max_depths> mtp_dnormed;
        std::tuple<typename Blocks::workspace...> blocks;
        std::array<typename mtp_module::workspace, loss_weights::max_depths> mtp;
        typename nn::language_head<T>::workspace head;
    };

    // What it holds. Each function serves two readers: with a null pointer it only counts or names, with a struct it
    // also fills it in.

    /// visit(view, storage, prefixes...) for every parameter, in the order of their global index.
    template <class E, class Visit> constexpr void each_parameter(parameters<E>* p, Visit&& visit) const {
        tensor<E, axis::vocabulary, axis::hidden> none;
        matrix<E> nothing;
        visit(p != nullptr ? p->embedding : none, nn::weight("embed_tokens.weight", of.vocab_size, of.hidden_size),
              "model.");
        each_layer([&](const auto& layer, auto kind, integer i, integer which) {
            typename std::remove_cvref_t<decltype(layer)>::template parameters<E> local{};
            layer.each_parameter(p != nullptr ? at<kind()>(p->blocks, i) : local, numbered(visit, which));
        });
        visit(p != nullptr ? p->final_norm : nothing, nn::gain("norm.weight", of.hidden_size), "model.");
        if (!of.tie_word_embeddings)
            visit(p != nullptr ? p->head : none, nn::weight("lm_head.weight", of.vocab_size, of.hidden_size));
        else if (p != nullptr)
            p->head = p->embedding;
        for (integer k = 0; k < of.num_nextn_predict_layers; ++k) {
            typename mtp_module::template parameters<E> local{};
            mtp().each_parameter(p != nullptr ? p->mtp[static_cast<std::size_t>(k)] : local,
                                 numbered(visit, layers() + k));
        }
    }
    template <class Visit> constexpr void each_buffer(buffers* b, Visit&& visit) const {
        each_layer([&](const auto& layer, auto kind, integer i, integer which) {
            typename std::remove_cvref_t<decltype(layer)>::buffers local{};
            layer.each_buffer(b != nullptr ? at<kind()>(b->blocks, i) : local, numbered(visit, which));
        });
        for (integer k = 0; k < of.num_nextn_predict_layers; ++k) {
            typename last_block::buffers local{};
            mtp().layer.each_buffer(b != nullptr ? b->mtp[static_cast<std::size_t>(k)] : local,
                                    numbered(visit, layers() + k));
        }
    }
    /// visit(buffers, layer, times) for the buffers of each kind of block, to count them.
    template <class Visit> constexpr void each_kind_of_buffers(Visit&& visit) const {
        each_segment([&](const auto& part, auto) {
            typename std::remove_cvref_t<decltype(part.layer)>::buffers local{};
            if (part.count > 0) visit(local, part.layer, part.count);
        });
        typename last_block::buffers local{};
        if (of.num_nextn_predict_layers > 0) visit(local, mtp().layer, of.num_nextn_predict_layers);
    }
    /// visit(storage, times) for every storage that differs from others by its layer's number at most.
    template <class Visit> constexpr void each_storage(Visit&& visit) const {
        const auto times = [&visit](integer n) {
            return [&visit, n](auto&, const nn::storage& facts, auto...) { visit(facts, n); };
        };
        visit(nn::weight("embed_tokens.weight", of.vocab_size, of.hidden_size), 1);
        each_segment([&](const auto& part, auto) {
            typename std::remove_cvref_t<decltype(part.layer)>::template parameters<A> local{};
            part.layer.each_parameter(local, times(part.count));
        });
        visit(nn::gain("norm.weight", of.hidden_size), 1);
        if (!of.tie_word_embeddings) visit(nn::weight("lm_head.weight", of.vocab_size, of.hidden_size), 1);
        typename mtp_module::template parameters<A> local{};
        if (of.num_nextn_predict_layers > 0) mtp().each_parameter(local, times(of.num_nextn_predict_layers));
    }
    /// What is kept from forward to backward.
    constexpr void keep(arena& memory, nn::extents shape, saved* s) const {
        const stream embedded = memory.take<T>(shape.tokens(), of.hidden_size);
        memory.mark("embedding", lifetime::saved);
        each_segment([&](const auto& part, auto kind) {
            const integer start = memory.used();
            for (integer i = 0; i < (s != nullptr ? part.count : std::min<integer>(part.count, 1)); ++i) {
                const auto kept = part.layer.keep(memory, shape);
                if (s != nullptr) at<kind()>(s->blocks, i) = kept;
            }
            if (s == nullptr && part.count > 1) memory.skip((part.count - 1) * (memory.used() - start));
            if (part.count > 0) memory.mark("blocks", lifetime::saved, part.first, part.count);
        });
        const stream normed = memory.take<T>(shape.tokens(), of.hidden_size);
        const matrix<A> inverse_rms = memory.take<A>(1, shape.tokens());
        memory.mark("final norm", lifetime::saved);
        for (integer k = 0; k < of.num_nextn_predict_layers; ++k) {
            const auto kept = mtp().keep(memory, shorter(shape, k + 1));
            if (s != nullptr) s->mtp[static_cast<std::size_t>(k)] = kept;
        }
        if (of.num_nextn_predict_layers > 0)
            memory.mark("multi-token prediction", lifetime::saved, layers(), of.num_nextn_predict_layers);
        if (s != nullptr) s->embedded = embedded, s->normed = normed, s->inverse_rms = inverse_rms;
    }
    /// Blocks run backward one at a time, so their deferred pieces lie over each other.
    constexpr void defer(arena& memory, nn::extents shape, deferred* d) const {
        overlay(memory, [&](auto& next) {
            each_segment([&](const auto& part, auto kind) {
                const auto pieces_of_block = part.layer.defer(memory, shape, false);
                if (d != nullptr) std::get<kind()>(d->blocks) = pieces_of_block;
                next();
            });
            for (integer k = 0; k < of.num_nextn_predict_layers; ++k, next()) {
                const auto pieces_of_module = mtp().defer(memory, shorter(shape, k + 1), false);
                if (d != nullptr) d->mtp[static_cast<std::size_t>(k)] = pieces_of_module;
            }
        });
    }
    constexpr void work(arena& memory, nn::extents shape, workspace* w) const {
        const stream g = memory.take<T>(shape.tokens(), of.hidden_size);
        const stream dnormed = memory.take<T>(shape.tokens(), of.hidden_size);
        const matrix<A> partials = memory.take<A>(pieces(shape.tokens(), ops::rms_norm_rows), of.hidden_size);
        if (w != nullptr) w->g = g, w->dnormed = dnormed, w->norm_partials = partials;
        for (integer k = 0; k < of.num_nextn_predict_layers; ++k) {
            const stream of_module = memory.take<T>(shorter(shape, k + 1).tokens(), of.hidden_size);
            if (w != nullptr) w->mtp_dnormed[static_cast<std::size_t>(k)] = of_module;
        }
        overlay(memory, [&](auto& next) {
            const auto of_head = head().work(memory, shape);
            if (w != nullptr) w->head = of_head;
            next();
            each_segment([&](const auto& part, auto kind) {
                const auto of_block = part.layer.work(memory, shape);
                if (w != nullptr) std::get<kind()>(w->blocks) = of_block;
                next();
            });
            for (integer k = 0; k < of.num_nextn_predict_layers; ++k, next()) {
                const auto of_module = mtp().work(memory, shorter(shape, k + 1));
                if (w != nullptr) w->mtp[static_cast<std::size_t>(k)] = of_module;
            }
        });
    }
    /// Bytes that a task of any of the model's operations needs.
    [[nodiscard]] constexpr integer scratch(nn::extents shape) const {
        integer most = head().scratch();
        each_segment([&](const auto& part, auto) { most = std::max(most, part.layer.scratch(shape)); });
        return most;
    }

    void resize(auto& holder) const {
        each_segment([&](const auto& part, auto kind) {
            std::get<kind()>(holder.blocks).resize(static_cast<std::size_t>(part.count));
        });
        holder.mtp.resize(static_cast<std::size_t>(of.num_nextn_predict_layers));
    }

    // What it costs.

    [[nodiscard]] constexpr integer layers() const {
        integer n = 0;
        each_segment([&](const auto& part, auto) { n += part.count; });
        return n;
    }
    /// Parameters in products that a token passes: without the embedding, with the head.
    [[nodiscard]] constexpr integer matrix_parameters() const {
        integer n = of.vocab_size * of.hidden_size;
        each_segment([&](const auto& part, auto) { n += part.count * part.layer.matrix_parameters(); });
        return n + of.num_nextn_predict_layers * (mtp().matrix_parameters() + of.vocab_size * of.hidden_size);
    }
    /// Model FLOPs of a micro-batch, forward and backward: 6 a parameter and token, and the causal half of attention.
    [[nodiscard]] constexpr double flops(nn::extents shape) const {
        double pairs = 0;
        each_segment(
            [&](const auto& part, auto) { pairs += static_cast<double>(part.count * part.layer.products_per_pair()); });
        pairs += static_cast<double>(of.num_nextn_predict_layers * mtp().layer.products_per_pair());
        return 6.0 * static_cast<double>(shape.tokens()) *
               (static_cast<double>(matrix_parameters()) + pairs * static_cast<double>(shape.length) / 2.0);
    }

    // What it does.

    /// One micro-batch: adds its losses to `terms` and its gradients to `gradients`.
    template <class Queue>
    void forward_backward(Queue& queue, const nn::micro_batch<A>& batch, const std::vector<depth_inputs>& in,
                          const parameters<T>& p, buffers& b, saved& s, deferred& d, workspace& w,
                          const loss_weights& weights, parameters<A>& gradients, loss_terms& terms) const {
        auto main = batch;
        main.balance_weight = weights.balance;
        main.balance_loss = &terms.balance;
        forward(queue, main, in, p, b, s, w);
        head().forward_backward(queue, s.normed, p.head, in[0].targets, weights.token, weights.z, w.head, w.dnormed,
                                gradients.head, terms.main);
        const integer depths = of.num_nextn_predict_layers;
        for (integer k = 1; k <= depths; ++k) {
            const auto at_k = static_cast<std::size_t>(k - 1);
            head().forward_backward(queue, s.mtp[at_k].normed, p.head, in[at_k + 1].targets, weights.mtp[at_k], 0,
                                    w.head, w.mtp_dnormed[at_k], gradients.head, terms.mtp[at_k]);
        }
        for (integer k = depths; k >= 1; --k) {
            const auto at_k = static_cast<std::size_t>(k - 1);
            mtp().backward(queue, depth_batch(main, in, k), p.mtp[at_k], b.mtp[at_k], in[at_k + 1].ids,
                           w.mtp_dnormed[at_k], 1, s.mtp[at_k], d.mtp[at_k], w.mtp[at_k],
                           k == 1 ? w.dnormed : w.mtp_dnormed[at_k - 1], gradients.embedding, gradients.mtp[at_k]);
        }
        ops::rms_norm_backward<T>(queue, w.g, false, gradients.final_norm.data, w.dnormed, last(s), s.inverse_rms.data,
                                  p.final_norm.data, w.norm_partials);
        each_layer_reversed([&](const auto& layer, auto kind, integer i) {
            layer.backward_input(queue, main, at<kind()>(p.blocks, i), at<kind()>(b.blocks, i), at<kind()>(s.blocks, i),
                                 w.g, std::get<kind()>(d.blocks), std::get<kind()>(w.blocks),
                                 &at<kind()>(gradients.blocks, i));
        });
        ops::embed_backward(queue, gradients.embedding, in[0].ids, matrix<const T>{w.g});
    }

    /// Fills s: the residual stream of every layer, the final norm, and the normed states of every depth.
    template <class Queue>
    void forward(Queue& queue, const nn::micro_batch<A>& batch, const std::vector<depth_inputs>& in,
                 const parameters<T>& p, buffers& b, saved& s, workspace& w) const {
        ops::embed<T>(queue, s.embedded, in[0].ids, p.embedding);
        tensor<const T, axis::tokens, axis::hidden> x = s.embedded;
        each_layer([&](const auto& layer, auto kind, integer i, integer) {
            layer.forward(queue, batch, at<kind()>(p.blocks, i), at<kind()>(b.blocks, i), x, at<kind()>(s.blocks, i),
                          std::get<kind()>(w.blocks));
            x = at<kind()>(s.blocks, i).y;
        });
        ops::rms_norm<T>(queue, s.normed, s.inverse_rms.data, x, p.final_norm.data, of.rms_norm_eps);
        for (integer k = 1; k <= of.num_nextn_predict_layers; ++k) {
            const auto at_k = static_cast<std::size_t>(k - 1);
            mtp().forward(queue, depth_batch(batch, in, k), p.mtp[at_k], b.mtp[at_k], p.embedding, in[at_k + 1].ids,
                          k == 1 ? s.normed : s.mtp[at_k - 1].normed, 1, s.mtp[at_k], w.mtp[at_k]);
        }
    }

    /// The losses of one micro-batch without gradients (no balance loss; loads are counted as ever).
    template <class Queue>
    void evaluate(Queue& queue, const nn::micro_batch<A>& batch, const std::vector<depth_inputs>& in,
                  const parameters<T>& p, buffers& b, saved& s, workspace& w, loss_terms& terms) const {
        forward(queue, batch, in, p, b, s, w);
        head().forward(queue, s.normed, p.head, in[0].targets, w.head, terms.main);
        for (std::size_t k = 0; k < s.mtp.size(); ++k)
            head().forward(queue, s.mtp[k].normed, p.head, in[k + 1].targets, w.head, terms.mtp[k]);
    }

    [[nodiscard]] constexpr nn::language_head<T> head() const { return {of.hidden_size, of.vocab_size}; }
    [[nodiscard]] constexpr mtp_module mtp() const { return {std::get<sizeof...(Blocks) - 1>(segments).layer}; }
    static constexpr nn::extents shorter(nn::extents shape, integer by) { return {shape.sequences, shape.length - by}; }
    /// The micro-batch as the module of depth k sees it.
    static nn::micro_batch<A> depth_batch(nn::micro_batch<A> batch, const std::vector<depth_inputs>& in, integer k) {
        batch.shape = shorter(batch.shape, k);
        batch.positions = in[static_cast<std::size_t>(k)].positions;
        batch.starts = in[static_cast<std::size_t>(k)].starts;
        return batch;
    }

    /// call(segment, integral constant of its kind) in order.
    template <class Call> constexpr void each_segment(Call&& call) const {
        [&]<std::size_t... Kind>(std::index_sequence<Kind...>) {
            (call(std::get<Kind>(segments), std::integral_constant<std::size_t, Kind>{}), ...);
        }
        (std::index_sequence_for<Blocks...>{});
    }
    /// call(layer, kind, place among its kind, layer number) for every block.
    template <class Call> constexpr void each_layer(Call&& call) const {
        each_segment([&](const auto& part, auto kind) {
            for (integer i = 0; i < part.count; ++i) call(part.layer, kind, i, part.first + i);
        });
    }

  private:
    template <std::size_t Kind> static constexpr auto& at(auto& tuple_of_vectors, integer i) {
        return std::get<Kind>(tuple_of_vectors)[static_cast<std::size_t>(i)];
    }
    template <class Visit> static constexpr auto numbered(Visit& visit, integer layer) {
        return [&visit, layer](auto& view, const nn::storage& facts, auto... prefixes) {
            visit(view, facts, "model.layers.", layer, ".", prefixes...);
        };
    }
    template <class Call> constexpr void each_layer_reversed(Call&& call) const {
        [&]<std::size_t... Back>(std::index_sequence<Back...>) { (reversed<sizeof...(Blocks) - 1 - Back>(call), ...); }
        (std::index_sequence_for<Blocks...>{});
    }
    template <std::size_t Kind, class Call> constexpr void reversed(Call& call) const {
        const auto& part = std::get<Kind>(segments);
        for (integer i = part.count - 1; i >= 0; --i) call(part.layer, std::integral_constant<std::size_t, Kind>{}, i);
    }
    /// The residual stream after the last block.
    tensor<const T, axis::tokens, axis::hidden> last(const saved& s) const {
        tensor<const T, axis::tokens, axis::hidden> x = s.embedded;
        each_layer([&](const auto&, auto kind, integer i, integer) { x = at<kind()>(s.blocks, i).y; });
        return x;
    }
    /// Carves several groups of pieces over each other: `next` goes back to where the first began.
    template <class Carve> static constexpr void overlay(arena& memory, Carve&& carve) {
        const integer start = memory.used();
        integer end = start;
        auto next = [&] {
            end = std::max(end, memory.used());
            memory.rewind(start);
        };
        carve(next);
        next();
        memory.rewind(end);
    }
};

}  // namespace fathom::models
