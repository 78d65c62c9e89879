// A whole language model as numbers over kinds of blocks: what it holds, and one micro-batch forward and backward
// through it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <fathom/models/depth_inputs.hpp>
#include <fathom/models/held_stages.hpp>
#include <fathom/models/loss.hpp>
#include <fathom/models/transformer_facts.hpp>
#include <fathom/nn/block.hpp>
#include <fathom/nn/language_head.hpp>
#include <fathom/nn/multi_token_prediction.hpp>
#include <fathom/nn/token_embedding.hpp>
#include <tuple>
#include <utility>
#include <vector>

namespace fathom::models {

/// Embedding, blocks, final norm, head, and D modules of multi-token prediction made of the last kind of block. Where
/// ranks split it (last_block::split), this rank's share of it: `held` stages, and of each what its tensor, context and
/// expert ranks leave to it.
template <class T, class... Blocks> struct transformer {
    using number = T;
    using A = accumulator_t<T>;
    using last_block = std::tuple_element_t<sizeof...(Blocks) - 1, std::tuple<Blocks...>>;
    using mtp_module = nn::multi_token_prediction<T, last_block>;
    using stream = tensor<T, axis::tokens, axis::hidden>;
    static constexpr bool split = last_block::split;

    transformer_facts of;
    nn::recomputation again{};
    std::tuple<segment<Blocks>...> segments;
    held_stages held{};

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
    /// Of one micro-batch in one chunk.
    struct saved {
        stream embedded, normed;  // of a chunk that does not begin with the embedding: what the stage before gave
        matrix<A> inverse_rms;
        std::tuple<std::vector<typename Blocks::saved>...> blocks;
        std::vector<typename mtp_module::saved> mtp;
    };
    /// With all blocks of a kind over each other, or with each block's own where weights' gradients come later.
    struct deferred {
        std::tuple<std::vector<typename Blocks::deferred>...> blocks;
        std::array<typename mtp_module::deferred, loss_weights::max_depths> mtp;
    };
    struct workspace {
        stream g, dnormed;
        matrix<A> norm_partials;
        std::array<stream, loss_weights::max_depths> mtp_dnormed;
        std::tuple<typename Blocks::workspace...> blocks;
        std::array<typename mtp_module::workspace, loss_weights::max_depths> mtp;
        typename nn::language_head<T, split>::workspace head;
        typename nn::token_embedding<T, split>::workspace embedding;
    };

    // What it holds. Each function serves two readers: with a null pointer it only counts or names, with a struct it
    // also fills it in.

    /// The embedding is here: with the first stage, and with the last one if something there reads it.
    [[nodiscard]] constexpr bool holds_embedding() const {
        return held.embedding() || (held.head() && (of.num_nextn_predict_layers > 0 || of.tie_word_embeddings));
    }
    [[nodiscard]] constexpr nn::storage embedding_storage() const { return vocabulary_storage("embed_tokens.weight"); }

    /// visit(view, storage, prefixes...) for every parameter, in the order of their global index.
    template <class E, class Visit> constexpr void each_parameter(parameters<E>* p, Visit&& visit) const {
        tensor<E, axis::vocabulary, axis::hidden> none;
        matrix<E> nothing;
        if (holds_embedding()) visit(p != nullptr ? p->embedding : none, embedding_storage(), "model.");
        each_layer([&](const auto& layer, auto kind, integer i, integer which) {
            typename std::remove_cvref_t<decltype(layer)>::template parameters<E> local{};
            layer.each_parameter(p != nullptr ? at<kind()>(p->blocks, i) : local, numbered(visit, which));
        });
        if (!held.head()) return;
        visit(p != nullptr ? p->final_norm : nothing, nn::gain("norm.weight", of.hidden_size), "model.");
        if (!of.tie_word_embeddings)
            visit(p != nullptr ? p->head : none, vocabulary_storage("lm_head.weight"));
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
        for (integer k = 0; k < depths_here(); ++k) {
            typename last_block::buffers local{};
            mtp().layer.each_buffer(b != nullptr ? b->mtp[static_cast<std::size_t>(k)] : local,
                                    numbered(visit, layers() + k));
        }
    }
    /// visit(buffers, layer, times) for the buffers of each kind of block, to count them.
    template <class Visit> constexpr void each_kind_of_buffers(Visit&& visit) const {
        each_segment([&](const auto& part, auto) {
            typename std::remove_cvref_t<decltype(part.layer)>::buffers local{};
            if (const integer n = held.total(part.first, part.count); n > 0) visit(local, part.layer, n);
        });
        typename last_block::buffers local{};
        if (depths_here() > 0) visit(local, mtp().layer, depths_here());
    }
    /// group(times, blocks) opens a group of storages that are there `times` times, of blocks of the model or not, and
    /// visit(storage) names those that differ from others by their layer's number at most.
    template <class Group, class Visit> constexpr void each_storage(Group&& group, Visit&& visit) const {
        const auto each = [&visit](auto&, const nn::storage& facts, auto...) { visit(facts); };
        if (holds_embedding()) {
            group(1, false);
            visit(embedding_storage());
        }
        each_segment([&](const auto& part, auto) {
            const integer n = held.total(part.first, part.count);
            if (n == 0) return;
            group(n, true);
            typename std::remove_cvref_t<decltype(part.layer)>::template parameters<A> local{};
            part.layer.each_parameter(local, each);
        });
        if (!held.head()) return;
        group(1, false);
        visit(nn::gain("norm.weight", of.hidden_size));
        if (!of.tie_word_embeddings) visit(vocabulary_storage("lm_head.weight"));
        if (of.num_nextn_predict_layers == 0) return;
        group(of.num_nextn_predict_layers, false);
        typename mtp_module::template parameters<A> local{};
        mtp().each_parameter(local, each);
    }
    /// What a chunk keeps of a micro-batch from forward to backward.
    constexpr void keep(arena& memory, nn::extents shape, saved* s, integer chunk = 0) const {
        const stream embedded = take_stream(memory, shape);
        memory.mark("embedding", lifetime::saved);
        each_segment([&](const auto& part, auto kind) {
            const stage held_part = held.part(chunk, part.first, part.count);
            const integer start = memory.used();
            for (integer i = 0; i < (s != nullptr ? held_part.count : std::min<integer>(held_part.count, 1)); ++i) {
                const auto kept = part.layer.keep(memory, shape);
                if (s != nullptr) at<kind()>(s->blocks, i) = kept;
            }
            if (s == nullptr && held_part.count > 1) memory.skip((held_part.count - 1) * (memory.used() - start));
            if (held_part.count > 0) memory.mark("blocks", lifetime::saved, held_part.first, held_part.count);
        });
        if (s != nullptr) s->embedded = embedded;
        if (!held[chunk].head) return;
        const stream normed = take_stream(memory, shape);
        const matrix<A> inverse_rms = memory.take<A>(1, stream_rows(shape));
        memory.mark("final norm", lifetime::saved);
        for (integer k = 0; k < of.num_nextn_predict_layers; ++k) {
            const auto kept = mtp().keep(memory, shorter(shape, k + 1));
            if (s != nullptr) s->mtp[static_cast<std::size_t>(k)] = kept;
        }
        if (of.num_nextn_predict_layers > 0)
            memory.mark("multi-token prediction", lifetime::saved, layers(), of.num_nextn_predict_layers);
        if (s != nullptr) s->normed = normed, s->inverse_rms = inverse_rms;
    }
    /// What backward's input part leaves for its weights' part. Together, blocks run backward one at a time, so their
    /// pieces lie over each other; apart, each block of the chunk has its own until its weights' part is done. Modules
    /// of multi-token prediction do both parts at once.
    constexpr void defer(arena& memory, nn::extents shape, deferred* d, integer chunk = 0, bool apart = false) const {
        if (apart)
            each_segment([&](const auto& part, auto kind) {
                for (integer i = 0; i < held.part(chunk, part.first, part.count).count; ++i) {
                    const auto pieces_of_block = part.layer.defer(memory, shape, true);
                    if (d != nullptr) at<kind()>(d->blocks, i) = pieces_of_block;
                }
            });
        overlay(memory, [&](auto& next) {
            if (!apart)
                each_segment([&](const auto& part, auto kind) {
                    if (held.total(part.first, part.count) == 0) return;
                    const auto pieces_of_block = part.layer.defer(memory, shape, false);
                    if (d != nullptr) at<kind()>(d->blocks, 0) = pieces_of_block;
                    next();
                });
            for (integer k = 0; k < depths_here(); ++k, next()) {
                const auto pieces_of_module = mtp().defer(memory, shorter(shape, k + 1), false);
                if (d != nullptr) d->mtp[static_cast<std::size_t>(k)] = pieces_of_module;
            }
        });
    }
    constexpr void work(arena& memory, nn::extents shape, workspace* w) const {
        const stream g = take_stream(memory, shape);
        const stream dnormed = take_stream(memory, shape);
        const matrix<A> partials = memory.take<A>(pieces(stream_rows(shape), ops::rms_norm_rows), of.hidden_size);
        if (w != nullptr) w->g = g, w->dnormed = dnormed, w->norm_partials = partials;
        for (integer k = 0; k < depths_here(); ++k) {
            const stream of_module = take_stream(memory, shorter(shape, k + 1));
            if (w != nullptr) w->mtp_dnormed[static_cast<std::size_t>(k)] = of_module;
        }
        overlay(memory, [&](auto& next) {
            const auto of_embedding = embedding().work(memory, shape);
            if (w != nullptr) w->embedding = of_embedding;
            next();
            const auto of_head = head().work(memory, shape);
            if (w != nullptr) w->head = of_head;
            next();
            each_segment([&](const auto& part, auto kind) {
                const auto of_block = part.layer.work(memory, shape);
                if (w != nullptr) std::get<kind()>(w->blocks) = of_block;
                next();
            });
            for (integer k = 0; k < depths_here(); ++k, next()) {
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

    /// Makes room for what this rank holds: of parameters and buffers in all, of what is saved or deferred in one
    /// chunk.
    void resize(auto& holder) const {
        each_segment([&](const auto& part, auto kind) {
            std::get<kind()>(holder.blocks).resize(static_cast<std::size_t>(held.total(part.first, part.count)));
        });
        holder.mtp.resize(static_cast<std::size_t>(depths_here()));
    }
    void resize(saved& s, integer chunk) const {
        each_segment([&](const auto& part, auto kind) {
            std::get<kind()>(s.blocks).resize(static_cast<std::size_t>(held.part(chunk, part.first, part.count).count));
        });
        s.mtp.resize(static_cast<std::size_t>(held[chunk].head ? of.num_nextn_predict_layers : 0));
    }
    void resize(deferred& d, integer chunk, bool apart) const {
        each_segment([&](const auto& part, auto kind) {
            std::get<kind()>(d.blocks).resize(
                static_cast<std::size_t>(apart ? held.part(chunk, part.first, part.count).count : 1));
        });
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

    /// One micro-batch through a whole model: adds its losses to `terms` and its gradients to `gradients`.
    template <class Queue>
    void forward_backward(Queue& queue, const nn::micro_batch<A>& batch, const std::vector<depth_inputs>& in,
                          const parameters<T>& p, buffers& b, saved& s, deferred& d, workspace& w,
                          const loss_weights& weights, parameters<A>& gradients, loss_terms& terms) const {
        const auto main = weighed(batch, weights, terms);
        forward(queue, main, in, p, b, s, w);
        backward(queue, main, in, p, b, s, d, w, w.g, weights, gradients, terms);
    }

    /// The micro-batch with its part of the balance loss.
    static nn::micro_batch<A> weighed(nn::micro_batch<A> batch, const loss_weights& weights, loss_terms& terms) {
        batch.balance_weight = weights.balance;
        batch.balance_loss = &terms.balance;
        return batch;
    }

    /// One micro-batch through one chunk. Fills s: the residual stream of every layer and, with the head, the final
    /// norm and the normed states of every depth. A chunk without the embedding begins with s.embedded.
    template <class Queue>
    void forward(Queue& queue, const nn::micro_batch<A>& batch, const std::vector<depth_inputs>& in,
                 const parameters<T>& p, buffers& b, saved& s, workspace& w, integer chunk = 0) const {
        if (held[chunk].embedding) embedding().forward(queue, batch, p.embedding, in[0].ids, s.embedded, w.embedding);
        tensor<const T, axis::tokens, axis::hidden> x = s.embedded;
        each_layer_of(chunk, [&](const auto& layer, auto kind, const layer_place& i) {
            if (batch.watch != nullptr) batch.watch->needs_weights(i.number, false);
            layer.forward(queue, batch, at<kind()>(p.blocks, i.here), at<kind()>(b.blocks, i.here), x,
                          at<kind()>(s.blocks, i.in_chunk), std::get<kind()>(w.blocks));
            x = at<kind()>(s.blocks, i.in_chunk).y;
        });
        if (!held[chunk].head) return;
        ops::rms_norm<T>(queue, s.normed, s.inverse_rms.data, x, p.final_norm.data, of.rms_norm_eps);
        for (integer k = 1; k <= of.num_nextn_predict_layers; ++k) {
            const auto at_k = static_cast<std::size_t>(k - 1);
            mtp().forward(queue, depth_batch(batch, in, k), p.mtp[at_k], b.mtp[at_k], p.embedding, in[at_k + 1].ids,
                          k == 1 ? s.normed : s.mtp[at_k - 1].normed, 1, s.mtp[at_k], w.mtp[at_k]);
        }
    }

    /// Back through one chunk, with the losses where it ends with the head. g is the gradient of what the chunk gives
    /// (with the head, of nothing) and becomes that of what it was given. Apart, blocks' weights are left to
    /// backward_weight.
    template <class Queue>
    void backward(Queue& queue, const nn::micro_batch<A>& batch, const std::vector<depth_inputs>& in,
                  const parameters<T>& p, buffers& b, saved& s, deferred& d, workspace& w, stream g,
                  const loss_weights& weights, parameters<A>& gradients, loss_terms& terms, integer chunk = 0,
                  bool apart = false) const {
        if (held[chunk].head) {
            head().forward_backward(queue, batch, s.normed, p.head, in[0].targets, weights.token, weights.z, w.head,
                                    w.dnormed, gradients.head, terms.main);
            const integer depths = of.num_nextn_predict_layers;
            for (integer k = 1; k <= depths; ++k) {
                const auto at_k = static_cast<std::size_t>(k - 1);
                head().forward_backward(queue, depth_batch(batch, in, k), s.mtp[at_k].normed, p.head,
                                        in[at_k + 1].targets, weights.mtp[at_k], 0, w.head, w.mtp_dnormed[at_k],
                                        gradients.head, terms.mtp[at_k]);
            }
            for (integer k = depths; k >= 1; --k) {
                const auto at_k = static_cast<std::size_t>(k - 1);
                mtp().backward(queue, depth_batch(batch, in, k), p.mtp[at_k], b.mtp[at_k], in[at_k + 1].ids,
                               w.mtp_dnormed[at_k], 1, s.mtp[at_k], d.mtp[at_k], w.mtp[at_k],
                               k == 1 ? w.dnormed : w.mtp_dnormed[at_k - 1], gradients.embedding, gradients.mtp[at_k]);
            }
            ops::rms_norm_backward<T>(queue, g, false, gradients.final_norm.data, w.dnormed, given(s, chunk),
                                      s.inverse_rms.data, p.final_norm.data, w.norm_partials);
        }
        each_layer_of<true>(chunk, [&](const auto& layer, auto kind, const layer_place& i) {
            if (batch.watch != nullptr) {
                batch.watch->needs_weights(i.number, true);
                batch.watch->begins_gradients(i.number, apart);
            }
            layer.backward_input(queue, batch, at<kind()>(p.blocks, i.here), at<kind()>(b.blocks, i.here),
                                 at<kind()>(s.blocks, i.in_chunk), g, at<kind()>(d.blocks, apart ? i.in_chunk : 0),
                                 std::get<kind()>(w.blocks), &at<kind()>(gradients.blocks, i.here), apart);
            if (batch.watch != nullptr && !apart) batch.watch->has_gradients(i.number);
        });
        if (held[chunk].embedding) embedding().backward(queue, batch, gradients.embedding, in[0].ids, g, w.embedding);
    }
    /// The blocks' weights, after `backward` apart.
    template <class Queue>
    void backward_weight(Queue& queue, const saved& s, const deferred& d, parameters<A>& gradients, integer chunk,
                         nn::block_watch* watch = nullptr) const {
        each_layer_of<true>(chunk, [&](const auto& layer, auto kind, const layer_place& i) {
            if (watch != nullptr) watch->begins_gradients(i.number, false);
            layer.backward_weight(queue, at<kind()>(s.blocks, i.in_chunk), at<kind()>(d.blocks, i.in_chunk),
                                  at<kind()>(gradients.blocks, i.here));
            if (watch != nullptr) watch->has_gradients(i.number);
        });
    }

    /// The losses of one micro-batch without gradients (no balance loss; loads are counted as ever).
    template <class Queue>
    void evaluate(Queue& queue, const nn::micro_batch<A>& batch, const std::vector<depth_inputs>& in,
                  const parameters<T>& p, buffers& b, saved& s, workspace& w, loss_terms& terms,
                  integer chunk = 0) const {
        forward(queue, batch, in, p, b, s, w, chunk);
        if (!held[chunk].head) return;
        head().forward(queue, batch, s.normed, p.head, in[0].targets, w.head, terms.main);
        for (integer k = 1; k <= of.num_nextn_predict_layers; ++k) {
            const auto at_k = static_cast<std::size_t>(k - 1);
            head().forward(queue, depth_batch(batch, in, k), s.mtp[at_k].normed, p.head, in[at_k + 1].targets, w.head,
                           terms.mtp[at_k]);
        }
    }

    /// The residual stream that a chunk gives: after its last block.
    tensor<const T, axis::tokens, axis::hidden> given(const saved& s, integer chunk = 0) const {
        tensor<const T, axis::tokens, axis::hidden> x = s.embedded;
        each_segment([&](const auto&, auto kind) {
            if (const auto& blocks = std::get<kind()>(s.blocks); !blocks.empty() && held[chunk].count > 0)
                x = blocks.back().y;
        });
        return x;
    }

    [[nodiscard]] constexpr nn::language_head<T, split> head() const {
        return {of.hidden_size, of.vocab_size, of.tensor};
    }
    [[nodiscard]] constexpr nn::token_embedding<T, split> embedding() const {
        return {of.hidden_size, of.vocab_size, of.tensor};
    }
    [[nodiscard]] constexpr mtp_module mtp() const {
        return {std::get<sizeof...(Blocks) - 1>(segments).layer, of.vocab_size, of.tensor};
    }
    /// Depths of multi-token prediction on this rank.
    [[nodiscard]] constexpr integer depths_here() const { return held.head() ? of.num_nextn_predict_layers : 0; }
    /// The shape of a micro-batch for the module of depth `by`: sequences are that many tokens shorter at their end.
    [[nodiscard]] constexpr nn::extents shorter(nn::extents shape, integer by) const {
        if constexpr (split) {
            const nn::context_share context = context_of(shape, by);
            return {shape.sequences, context.count(of.context.rank), context.longest()};
        } else {
            return {shape.sequences, shape.length - by};
        }
    }
    /// Which places of its sequences this rank has, whose depth 0 has `shape`.
    [[nodiscard]] constexpr nn::context_share context_of(nn::extents shape, integer missing) const {
        return {of.context.ranks, of.context.rank, shape.length * of.context.ranks, missing};
    }
    /// The micro-batch as the module of depth k sees it.
    nn::micro_batch<A> depth_batch(nn::micro_batch<A> batch, const std::vector<depth_inputs>& in, integer k) const {
        batch.shape = shorter(batch.shape, k);
        batch.context.missing = k;
        batch.positions = in[static_cast<std::size_t>(k)].positions;
        batch.starts = in[static_cast<std::size_t>(k)].starts;
        return batch;
    }
    /// Rows of the residual stream, with what makes the shares of all tensor ranks equal.
    [[nodiscard]] constexpr integer stream_rows(nn::extents shape) const {
        return split ? share_of{shape.tokens(), of.tensor.ranks, of.tensor.rank}.each : shape.tokens();
    }
    constexpr stream take_stream(arena& memory, nn::extents shape) const {
        const matrix<T> rows = memory.take<T>(stream_rows(shape), of.hidden_size);
        if constexpr (split)
            return rows.rows_at(0, share_of{shape.tokens(), of.tensor.ranks, of.tensor.rank}.count);
        else
            return rows;
    }

    /// call(segment, integral constant of its kind) in order.
    template <class Call> constexpr void each_segment(Call&& call) const {
        [&]<std::size_t... Kind>(std::index_sequence<Kind...>) {
            (call(std::get<Kind>(segments), std::integral_constant<std::size_t, Kind>{}), ...);
        }
        (std::index_sequence_for<Blocks...>{});
    }
    /// call(layer, kind, place among its kind, layer number) for every block that is here.
    template <class Call> constexpr void each_layer(Call&& call) const {
        for (integer n = 0; n < held.count; ++n)
            each_layer_of(held.in_order(n), [&](const auto& layer, auto kind, const layer_place& place) {
                call(layer, kind, place.here, place.number);
            });
    }
    /// call(layer, kind, place) for the blocks of a chunk, in order or backward.
    template <bool Backward = false, class Call> constexpr void each_layer_of(integer chunk, Call&& call) const {
        [&]<std::size_t... N>(std::index_sequence<N...>) {
            (blocks_of < Backward ? sizeof...(Blocks) - 1 - N : N, Backward > (chunk, call), ...);
        }
        (std::index_sequence_for<Blocks...>{});
    }

  private:
    template <std::size_t Kind> static constexpr auto& at(auto& tuple_of_vectors, integer i) {
        return std::get<Kind>(tuple_of_vectors)[static_cast<std::size_t>(i)];
    }
    template <std::size_t Kind, bool Backward, class Call> constexpr void blocks_of(integer chunk, Call& call) const {
        const auto& part = std::get<Kind>(segments);
        const stage here = held.part(chunk, part.first, part.count);
        integer before = 0;
        for (integer c = 0; c < held.count; ++c)
            if (held[c].first < held[chunk].first) before += held.part(c, part.first, part.count).count;
        for (integer n = 0; n < here.count; ++n) {
            const integer i = Backward ? here.count - 1 - n : n;
            call(part.layer, std::integral_constant<std::size_t, Kind>{}, layer_place{before + i, i, here.first + i});
        }
    }
    [[nodiscard]] constexpr nn::storage vocabulary_storage(const char* name) const {
        nn::storage whole = nn::weight(name, of.vocab_size, of.hidden_size);
        whole.parts[0] = nn::rows_over(of.tensor, whole.parts[0]);
        whole.rows = whole.parts[0].rows;
        return whole;
    }
    template <class Visit> static constexpr auto numbered(Visit& visit, integer layer) {
        return [&visit, layer](auto& view, const nn::storage& facts, auto... prefixes) {
            nn::storage in_layer = facts;
            in_layer.layer = layer;
            visit(view, in_layer, "model.layers.", layer, ".", prefixes...);
        };
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
