// Multi-token prediction (MTP): one more block a depth that predicts the token after next from the hidden state before
// it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fathom/core/number.hpp>
#include <fathom/nn/block.hpp>
#include <fathom/nn/parameter.hpp>
#include <fathom/nn/project.hpp>
#include <fathom/ops/elementwise.hpp>
#include <fathom/ops/embedding.hpp>
#include <fathom/ops/rms_norm.hpp>
#include <fathom/tensor/arena.hpp>

namespace fathom::nn {

/// The module of depth k: h'_i = eh_proj([enorm(embedding of token i + k) ; hnorm(h_i of depth k - 1)]), a block, and a
/// norm of its own before the shared head (V3 report, section 2.2). Its sequences are k tokens shorter; depth 0's h is
/// the main model's after its final norm, that of other depths after their own.
template <class T, class Block> struct multi_token_prediction {
    using A = accumulator_t<T>;
    using stream = tensor<T, axis::tokens, axis::hidden>;
    using const_stream = tensor<const T, axis::tokens, axis::hidden>;

    Block layer;

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
        const integer n = shape.tokens();
        saved s;
        s.embedded = memory.take<T>(n, hidden());
        s.previous = memory.take<T>(n, hidden());
        s.x = memory.take<T>(n, hidden());
        s.normed = memory.take<T>(n, hidden());
        s.joined = memory.take<T>(n, 2 * hidden());
        s.enorm_inverse_rms = memory.take<A>(1, n);
        s.hnorm_inverse_rms = memory.take<A>(1, n);
        s.head_inverse_rms = memory.take<A>(1, n);
        s.layer = layer.keep(memory, shape);
        return s;
    }
    constexpr deferred defer(arena& memory, extents shape, bool apart) const {
        return {layer.defer(memory, shape, apart)};
    }
    constexpr workspace work(arena& memory, extents shape) const {
        const integer n = shape.tokens();
        workspace w;
        w.g = memory.take<T>(n, hidden());
        w.dnormed = memory.take<T>(n, hidden());
        w.dpart = memory.take<T>(n, hidden());
        w.djoined = memory.take<T>(n, 2 * hidden());
        w.norm_partials = memory.take<A>(pieces(n, ops::rms_norm_rows), hidden());
        w.layer = layer.work(memory, shape);
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
        const integer length = batch.shape.length;
        ops::embed<T>(queue, s.embedded, ids, embedding);
        for (integer q = 0; q < batch.shape.sequences; ++q)
            ops::copy(queue, s.previous.rows_at(q * length, length), previous.rows_at(q * (length + skip), length));
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
        const integer length = batch.shape.length;
        norm_backward(queue, w.g, gradients.head_norm, dnormed, s.layer.y, s.head_inverse_rms, p.head_norm, w);
        layer.backward_input(queue, batch, p.layer, b, s.layer, w.g, d.layer, w.layer, &gradients.layer);
        project_weight(queue, gradients.eh_proj, w.g, s.joined);
        project_input(queue, w.djoined, w.g, p.eh_proj);
        norm_backward(queue, w.dpart, gradients.enorm, w.djoined.columns_at(0, hidden()), s.embedded,
                      s.enorm_inverse_rms, p.enorm, w);
        ops::embed_backward(queue, dembedding, ids, matrix<const T>{w.dpart});
        norm_backward(queue, w.dpart, gradients.hnorm, w.djoined.columns_at(hidden(), hidden()), s.previous,
                      s.hnorm_inverse_rms, p.hnorm, w);
        for (integer q = 0; q < batch.shape.sequences; ++q)
            ops::add(queue, dprevious.rows_at(q * (length + skip), length), w.dpart.rows_at(q * length, length));
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
    template <class Queue>
    void norm_backward(Queue& queue, matrix<T> dx, matrix<A> dgain, matrix<const T> dy, matrix<const T> x,
                       matrix<A> inverse_rms, matrix<T> gain, workspace& w) const {
        ops::rms_norm_backward<T>(queue, dx, false, dgain.data, dy, x, inverse_rms.data, gain.data, w.norm_partials);
    }
};

}  // namespace fathom::nn
