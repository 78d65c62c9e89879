// Multi-token prediction (MTP): one more block a depth that predicts the token after next from the hidden state before
// it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fathom/core/number.hpp>
#include <fathom/nn/block.hpp>
#include <fathom/nn/parameter.hpp>
#include <fathom/nn/project.hpp>
#include <fathom/nn/tensor_exchange.hpp>
#include <fathom/nn/token_embedding.hpp>
#include <fathom/ops/elementwise.hpp>
#include <fathom/ops/rms_norm.hpp>
#include <fathom/tensor/arena.hpp>

namespace fathom::nn {

/// The module of depth k: h'_i = eh_proj([enorm(embedding of token i + k) ; hnorm(h_i of depth k - 1)]), a block, and a
/// norm of its own before the shared head (V3 report, section 2.2). Its sequences are k tokens shorter; depth 0's h is
/// the main model's after its final norm, that of other depths after their own.
/// Of a split block, the streams are this rank's share of the tokens, and so is what is read of the depth before.
template <class T, class Block> struct multi_token_prediction {
    using A = accumulator_t<T>;
    using stream = tensor<T, axis::tokens, axis::hidden>;
    using const_stream = tensor<const T, axis::tokens, axis::hidden>;

    static constexpr bool split = Block::split;

    Block layer;
    integer vocab_size = 0;
    split_over over{};  // the ranks that split the vocabulary and share the tokens

    template <class E> struct parameters {
        matrix<E> enorm, hnorm, head_norm;
        tensor<E, axis::hidden, axis::two_hidden> eh_proj;
        typename Block::template parameters<E> layer;
    };
    struct saved {
        stream embedded, previous, x, normed;
        tensor<T, axis::tokens, axis::two_hidden> joined;
        matrix<A> enorm_inverse_rms, hnorm_inverse_rms, head_inverse_rms;
        typename Block::saved layer;
    };
    struct deferred {
        typename Block::deferred layer;
    };
    struct workspace {
        stream g, dnormed, dpart;
        tensor<T, axis::tokens, axis::two_hidden> djoined;
        matrix<A> norm_partials;
        typename token_embedding<T, split>::workspace embedding;
        stream whole;  // [longer sequences' tokens of all tensor ranks, hidden]
        typename Block::workspace layer;
    };

    [[nodiscard]] constexpr integer hidden() const { return layer.of.hidden_size; }

    template <class P, class Visit> constexpr void each_parameter(P& p, Visit&& visit) const {
        visit(p.enorm, gain("enorm.weight", hidden()));
        visit(p.hnorm, gain("hnorm.weight", hidden()));
        visit(p.eh_proj, weight("eh_proj.weight", hidden(), 2 * hidden()));
        layer.each_parameter(p.layer, visit);
        visit(p.head_norm, gain("shared_head.norm.weight", hidden()));
    }

    constexpr saved keep(arena& memory, extents shape) const {
        const integer n = stream_rows(shape);
        saved s;
        s.embedded = take_stream(memory, shape, hidden());
        s.previous = take_stream(memory, shape, hidden());
        s.x = take_stream(memory, shape, hidden());
        s.normed = take_stream(memory, shape, hidden());
        s.joined = take_stream(memory, shape, 2 * hidden());
        s.enorm_inverse_rms = memory.take<A>(1, n);
        s.hnorm_inverse_rms = memory.take<A>(1, n);
        s.head_inverse_rms = memory.take<A>(1, n);
        s.layer = layer.keep(memory, shape);
        return s;
    }
    constexpr deferred defer(arena& memory, extents shape, bool apart) const {
        return {layer.defer(memory, shape, apart)};
    }
    /// Room for modules whose `previous` has up to `skip` more tokens a sequence.
    constexpr workspace work(arena& memory, extents shape, integer skip = 1) const {
        workspace w;
        w.g = take_stream(memory, shape, hidden());
        w.dnormed = take_stream(memory, shape, hidden());
        w.dpart = take_stream(memory, shape, hidden());
        w.djoined = take_stream(memory, shape, 2 * hidden());
        w.norm_partials = memory.take<A>(pieces(stream_rows(shape), ops::rms_norm_rows), hidden());
        const integer start = memory.used();
        if constexpr (split) {
            w.embedding = embedding_layer().work(memory, shape);
            memory.rewind(start);
            w.whole =
                tensor_exchange{over, {shape.sequences, shape.length + skip}}.template take_whole<T>(memory, hidden());
        }
        const integer end = memory.used();
        memory.rewind(start);  // the block works between what the others do
        w.layer = layer.work(memory, shape);
        memory.rewind(std::max(end, memory.used()));
        return w;
    }
    [[nodiscard]] constexpr integer matrix_parameters() const {
        return 2 * hidden() * hidden() + layer.matrix_parameters();
    }

    /// Fills s.normed, what the shared head reads. `ids` are the tokens k places on; `previous` has `skip` more tokens
    /// a sequence.
    template <class Queue>
    void forward(Queue& queue, const micro_batch<A>& batch, const parameters<T>& p, typename Block::buffers& b,
                 tensor<const T, axis::vocabulary, axis::hidden> embedding, const std::int32_t* ids,
                 const_stream previous, integer skip, saved& s, workspace& w) const {
        const integer length = batch.shape.length, before = longer_length(batch, skip);
        embedding_layer().forward(queue, batch, embedding, ids, s.embedded, w.embedding);
        if constexpr (split) {
            const tensor_exchange between{over, batch.shape}, longer = longer_exchange(batch, skip);
            const matrix<const T> all = longer.gather(queue, batch.ranks, previous, longer.whole(matrix<T>{w.whole}),
                                                      "hidden states of the depth before");
            for (integer q = 0; q < batch.shape.sequences; ++q) {
                const auto [first, count] = clipped(q * length, length, between.mine);
                ops::copy(queue, s.previous.rows_at(first - between.mine.first, count),
                          all.rows_at(first + q * (before - length), count));
            }
        } else {
            for (integer q = 0; q < batch.shape.sequences; ++q)
                ops::copy(queue, s.previous.rows_at(q * length, length), previous.rows_at(q * before, length));
        }
        ops::rms_norm<T>(queue, s.joined.columns_at(0, hidden()), s.enorm_inverse_rms.data, s.embedded, p.enorm.data,
                         eps());
        ops::rms_norm<T>(queue, s.joined.columns_at(hidden(), hidden()), s.hnorm_inverse_rms.data, s.previous,
                         p.hnorm.data, eps());
        project(queue, s.x, s.joined, p.eh_proj);
        layer.forward(queue, batch, p.layer, b, s.x, s.layer, w.layer);
        ops::rms_norm<T>(queue, s.normed, s.head_inverse_rms.data, s.layer.y, p.head_norm.data, eps());
    }

    /// From dnormed, the gradient of s.normed, to the gradients of everything read: `dprevious` and `dembedding` are
    /// added to.
    template <class Queue>
    void backward(Queue& queue, const micro_batch<A>& batch, const parameters<T>& p, typename Block::buffers& b,
                  const std::int32_t* ids, stream dnormed, integer skip, saved& s, deferred& d, workspace& w,
                  stream dprevious, tensor<A, axis::vocabulary, axis::hidden> dembedding,
                  parameters<A>& gradients) const {
        const integer length = batch.shape.length, before = longer_length(batch, skip);
        norm_backward(queue, w.g, gradients.head_norm, dnormed, s.layer.y, s.head_inverse_rms, p.head_norm, w);
        layer.backward_input(queue, batch, p.layer, b, s.layer, w.g, d.layer, w.layer, &gradients.layer);
        project_weight(queue, gradients.eh_proj, w.g, s.joined);
        project_input(queue, w.djoined, w.g, p.eh_proj);
        norm_backward(queue, w.dpart, gradients.enorm, w.djoined.columns_at(0, hidden()), s.embedded,
                      s.enorm_inverse_rms, p.enorm, w);
        embedding_layer().backward(queue, batch, dembedding, ids, w.dpart, w.embedding);
        norm_backward(queue, w.dpart, gradients.hnorm, w.djoined.columns_at(hidden(), hidden()), s.previous,
                      s.hnorm_inverse_rms, p.hnorm, w);
        if constexpr (split) {
            const tensor_exchange between{over, batch.shape}, longer = longer_exchange(batch, skip);
            const matrix<const T> all = between.gather(queue, batch.ranks, w.dpart, between.whole(matrix<T>{w.whole}),
                                                       "gradient of the depth before");
            for (integer q = 0; q < batch.shape.sequences; ++q) {
                const auto [first, count] = clipped(q * before, length, longer.mine);
                ops::add(queue, dprevious.rows_at(first - longer.mine.first, count),
                         all.rows_at(first - q * (before - length), count));
            }
        } else {
            for (integer q = 0; q < batch.shape.sequences; ++q)
                ops::add(queue, dprevious.rows_at(q * before, length), w.dpart.rows_at(q * length, length));
        }
    }

    /// visit(operation, name, view) for what forward kept, in the order in which it was made.
    template <class Visit> void each_saved(const saved& s, Visit&& visit) const {
        visit("lookup", "embedded", s.embedded);
        visit("norms of embedding and hidden state", "joined", s.joined);
        visit("eh_proj", "x", s.x);
        layer.each_saved(s.layer, visit);
        visit("norm before the head", "normed", s.normed);
    }

  private:
    [[nodiscard]] constexpr double eps() const { return layer.of.rms_norm_eps; }
    [[nodiscard]] constexpr token_embedding<T, split> embedding_layer() const { return {hidden(), vocab_size, over}; }
    [[nodiscard]] constexpr integer stream_rows(extents shape) const {
        return split ? share_of{shape.tokens(), over.ranks, over.rank}.each : shape.tokens();
    }
    constexpr matrix<T> take_stream(arena& memory, extents shape, integer width) const {
        if constexpr (split) return tensor_exchange{over, shape}.template take_share<T>(memory, width);
        return memory.take<T>(shape.tokens(), width);
    }

    /// Tokens of a sequence in the depth before. Of them this depth has those at the beginning, also where context
    /// ranks share sequences: a late chunk ends before an early one gets shorter.
    static constexpr integer longer_length(const micro_batch<A>& batch, integer skip) {
        if (batch.context.ranks == 1) return batch.shape.length + skip;
        context_share longer = batch.context;
        longer.missing -= skip;
        return longer.count(longer.rank);
    }
    [[nodiscard]] constexpr tensor_exchange longer_exchange(const micro_batch<A>& batch, integer skip) const {
        return {over, {batch.shape.sequences, longer_length(batch, skip)}};
    }
    /// The part of rows [row, row + count) that a share has.
    static constexpr context_share::run clipped(integer row, integer count, share_of share) {
        const integer first = std::max(row, share.first), end = std::min(row + count, share.first + share.count);
        return {first, std::max<integer>(end - first, 0)};
    }
    template <class Queue>
    void norm_backward(Queue& queue, matrix<T> dx, matrix<A> dgain, matrix<const T> dy, matrix<const T> x,
                       matrix<A> inverse_rms, matrix<T> gain, workspace& w) const {
        ops::rms_norm_backward<T>(queue, dx, false, dgain.data, dy, x, inverse_rms.data, gain.data, w.norm_partials);
    }
};

}  // namespace fathom::nn
