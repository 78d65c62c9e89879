// Grouped-query attention of ranks that share sequences: keys and values of few heads travel between them.
#pragma once

#include <algorithm>
#include <fathom/nn/detail/context_gather.hpp>
#include <fathom/nn/detail/context_ring.hpp>
#include <fathom/nn/grouped_query_attention.hpp>

namespace fathom::nn {

/// grouped_query_attention of split layers, with any number of context ranks. All-gather: keys and values of whole
/// sequences are gathered in each call, so that only this rank's are kept. Ring: they travel.
template <class T> struct context_grouped_query_attention : grouped_query_attention<T> {
    using base = grouped_query_attention<T>;
    using typename base::A;
    template <class E> using parameters = typename base::template parameters<E>;
    using typename base::deferred;
    using typename base::saved;

    struct workspace : base::workspace {
        matrix<T> kv, dkv;  // of whole sequences
        matrix<ops::place_run> runs;
        detail::context_ring<T> ring;
    };

    constexpr workspace work(arena& memory, extents shape) const {
        workspace w{base::work(memory, shape), {}, {}, {}, {}};
        if (gathers()) {
            w.kv = memory.take<T>(across().tokens(shape), 2 * base::keys());
            w.dkv = memory.take<T>(across().tokens(shape), 2 * base::keys());
            w.runs = memory.take<ops::place_run>(1, 2 * of.context.ranks);
        }
        if (rings()) w.ring = ring_type::work(memory, shape, base::queries(), base::queries(), 2 * base::keys());
        return w;
    }
    [[nodiscard]] constexpr integer scratch(extents shape) const {
        const integer most = std::max(shape.longest, shape.length);
        return base::scratch({shape.sequences, gathers() ? of.context.ranks * most : most});
    }

    template <class Queue>
    void forward(Queue& queue, const micro_batch<A>& batch, const parameters<T>& p,
                 tensor<const T, axis::tokens, axis::hidden> x, saved& s, workspace& w,
                 tensor<T, axis::tokens, axis::hidden> y) const {
        if (of.context.ranks == 1) return base::forward(queue, batch, p, x, s, w, y);
        const detail::context_places places{of.context, batch};
        s.x = x;
        const auto qkv = again.up_projections ? w.qkv : s.qkv;
        base::make_queries_keys_values(queue, batch, p, x, qkv);
        const ops::attention_facts sizes = base::heads(base::scale());
        bring_keys(queue, places, qkv, w);
        if (rings()) {
            w.ring.forward(queue, sizes, places, operands(), base::own_queries(qkv), batch.starts, s.out, s.logsumexp);
        } else {
            const auto queries = places.own();
            ops::attention_forward<T>(queue, sizes, places.sequences, queries, across().runs(places, w.kv, w.runs.data),
                                      base::template operands<const T>(base::own_queries(qkv), w.kv), batch.starts,
                                      matrix<T>{s.out}, s.logsumexp);
        }
        base::project_out(queue, p, s, y);
    }

    template <class Queue>
    void backward_input(Queue& queue, const micro_batch<A>& batch, const parameters<T>& p, saved& s,
                        tensor<const T, axis::tokens, axis::hidden> dy, deferred& d, workspace& w,
                        tensor<T, axis::tokens, axis::hidden> dx) const {
        if (of.context.ranks == 1) return base::backward_input(queue, batch, p, s, dy, d, w, dx);
        const detail::context_places places{of.context, batch};
        detail::hold_gradient(queue, dy, d);
        const auto qkv = again.up_projections ? w.qkv : s.qkv;
        if (again.up_projections) base::make_queries_keys_values(queue, batch, p, s.x, qkv);
        project_input(queue, w.dout, dy, p.o);
        const ops::attention_facts sizes = base::heads(base::scale());
        const matrix<T> dq = base::own_queries(d.dqkv), dkv = base::own_keys_values(d.dqkv);
        bring_keys(queue, places, qkv, w);
        if (rings()) {
            ops::copy(queue, dkv,
                      w.ring.backward(queue, sizes, places, operands(), base::own_queries(qkv), batch.starts, s.out,
                                      s.logsumexp, w.dout, dq, {}));
        } else {
            const auto queries = places.own();
            ops::attention_backward<T>(queue, sizes, places.sequences, queries,
                                       across().runs(places, w.kv, w.runs.data),
                                       base::template operands<const T>(base::own_queries(qkv), w.kv), batch.starts,
                                       s.out, s.logsumexp, w.dout, base::template operands<T>(dq, w.dkv), {});
            across().scatter(places, w.dkv, "gradients of the keys and values of sequences");
            ops::copy(queue, dkv, across().own(w.dkv, dkv.rows));
        }
        base::rotate(queue, batch, d.dqkv, true);
        project_input(queue, dx, d.dqkv, p.qkv);
    }

    using base::again;
    using base::of;

  private:
    using ring_type = detail::context_ring<T>;
    [[nodiscard]] constexpr bool rings() const { return of.context.ranks > 1 && of.exchange == context_exchange::ring; }
    [[nodiscard]] constexpr bool gathers() const { return of.context.ranks > 1 && !rings(); }
    [[nodiscard]] constexpr detail::context_gather across() const { return {of.context}; }
    [[nodiscard]] auto operands() const {
        return [this]<class N>(matrix<N> q, std::type_identity_t<matrix<N>> rows) {
            return base::template operands<N>(q, rows);
        };
    }
    /// This rank's keys and values where others get them from; gathered, those of whole sequences.
    template <class Queue>
    void bring_keys(Queue& queue, const detail::context_places& places, matrix<T> qkv, const workspace& w) const {
        const matrix<T> own = rings() ? w.ring.own(places) : across().own(w.kv, qkv.rows);
        ops::copy(queue, own, base::own_keys_values(qkv));
        if (!rings()) across().gather(queue, places, w.kv, "keys and values of sequences");
    }
};

}  // namespace fathom::nn
