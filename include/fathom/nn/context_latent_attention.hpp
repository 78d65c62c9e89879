// Multi-head latent attention of ranks that share sequences: what travels between them is little, as latents are.
#pragma once

#include <algorithm>
#include <fathom/nn/detail/context_gather.hpp>
#include <fathom/nn/detail/context_ring.hpp>
#include <fathom/nn/latent_attention.hpp>

namespace fathom::nn {

/// latent_attention of split layers, with any number of context ranks. All-gather: latents and rotary keys of whole
/// sequences are gathered and every rank makes the keys and values of its heads from them; with recomputed norms they
/// are gathered again in backward. Ring: the keys and values of its heads travel.
template <class T> struct context_latent_attention : latent_attention<T> {
    using base = latent_attention<T>;
    using typename base::A;
    template <class E> using parameters = typename base::template parameters<E>;
    using typename base::deferred;
    using typename base::saved;

    struct workspace : base::workspace {
        tensor<T, axis::tokens, axis::latent_input> dlatents;  // of whole sequences
        matrix<ops::place_run> runs;
        detail::context_ring<T> ring;
    };

    constexpr saved keep(arena& memory, extents shape) const {
        saved s = base::keep(memory, rows_of(shape));
        if (gathers() && !again.norms) s.c_kv = take_latents(memory, shape);
        return s;
    }
    constexpr deferred defer(arena& memory, extents shape, bool apart) const {
        deferred d = base::defer(memory, rows_of(shape), apart);
        if (gathers() && again.norms) d.c_kv = take_latents(memory, shape);
        return d;
    }
    constexpr workspace work(arena& memory, extents shape) const {
        workspace w{base::work(memory, rows_of(shape)), {}, {}, {}};
        if (gathers()) {
            if (again.norms) w.c_kv = take_latents(memory, shape);
            w.dlatents = memory.take<T>(across().tokens(shape), base::kv_a());
            w.runs = memory.take<ops::place_run>(1, 2 * of.context.ranks);
        }
        if (rings()) w.ring = ring_type::work(memory, shape, base::values(), base::queries(), ring_width());
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
        base::project_in(queue, batch, p, x, s);
        const auto c_q = again.norms ? w.c_q : s.c_q;
        const auto c_kv = again.norms ? w.c_kv : s.c_kv;
        const auto q = base::queries_of(s, w);
        const auto kv = again.up_projections ? w.kv : s.kv;
        make_latents(queue, places, p, s, c_q, c_kv);
        base::up_project(queue, batch, p, c_q, c_kv, q, kv);
        const ops::attention_facts sizes = base::heads(base::scale());
        if (rings()) {
            fill_ring(queue, places, s, w, kv);
            w.ring.forward(queue, sizes, places, ring_operands(), q, batch.starts, s.out, s.logsumexp);
        } else {
            const auto queries = places.own();
            ops::attention_forward<T>(queue, sizes, places.sequences, queries, across().runs(places, kv, w.runs.data),
                                      base::template operands<const T>(q, kv, rotary(latents(c_kv))), batch.starts,
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
        if (again.norms)
            make_latents(queue, places, p, s, d.c_q, d.c_kv);
        else
            d.c_q = s.c_q, d.c_kv = s.c_kv;
        const auto q = base::queries_of(s, w);
        const auto kv = again.up_projections ? w.kv : s.kv;
        if (again.up_projections) base::up_project(queue, batch, p, d.c_q, d.c_kv, q, kv);
        project_input(queue, w.dout, dy, p.o);
        const ops::attention_facts sizes = base::heads(base::scale());
        const auto dq = base::query_gradients(d);
        if (rings()) {
            fill_ring(queue, places, s, w, kv);
            const matrix<const A> own = w.ring.backward(queue, sizes, places, ring_operands(), q, batch.starts, s.out,
                                                        s.logsumexp, w.dout, dq, w.shared_parts);
            ops::copy(queue, matrix<T>{d.dkv}, own.columns_at(0, base::keys_values()));
            ops::copy(queue, base::own_rotary(d.da), own.columns_at(base::keys_values(), of.qk_rope_head_dim));
            project_input(queue, w.dc_kv, d.dkv, p.kv_b);
            return base::finish_backward(queue, batch, p, s, d, w, w.dc_kv, dx);
        }
        const auto queries = places.own();
        ops::attention_backward<T>(queue, sizes, places.sequences, queries, across().runs(places, kv, w.runs.data),
                                   base::template operands<const T>(q, kv, rotary(latents(d.c_kv))), batch.starts,
                                   s.out, s.logsumexp, w.dout,
                                   base::template operands<T>(dq, d.dkv, rotary(w.dlatents)), w.shared_parts);
        across().clear_rest(queue, places, matrix<T>{d.dkv});
        project_input(queue, w.dlatents.template part<axis::kv_latent>(0, of.kv_lora_rank), d.dkv, p.kv_b);
        across().scatter(places, matrix<T>{w.dlatents}, "gradients of the latents of sequences");
        const matrix<T> own = across().own(matrix<T>{w.dlatents}, dx.rows);
        ops::copy(queue, base::own_rotary(d.da), rotary(own));
        base::finish_backward(queue, batch, p, s, d, w, {own.columns_at(0, of.kv_lora_rank)}, dx);
    }

    using base::again;
    using base::of;

  private:
    using ring_type = detail::context_ring<T>;
    [[nodiscard]] constexpr bool rings() const { return of.context.ranks > 1 && of.exchange == context_exchange::ring; }
    [[nodiscard]] constexpr bool gathers() const { return of.context.ranks > 1 && !rings(); }
    [[nodiscard]] constexpr detail::context_gather across() const { return {of.context}; }
    [[nodiscard]] constexpr typename base::row_counts rows_of(extents shape) const {
        const integer own = shape.tokens(), all = across().tokens(shape);
        if (gathers()) return {.tokens = own, .latents = 0, .keys = all, .seen_keys = all};
        return {.tokens = own, .latents = own, .keys = own, .seen_keys = rings() ? shape.most_tokens() : own};
    }

    /// Latents of whole sequences have their rotary keys beside them: latents[tokens, kv_lora_rank + qk_rope_head_dim],
    /// of which c_kv are the first columns.
    constexpr tensor<T, axis::tokens, axis::kv_latent> take_latents(arena& memory, extents shape) const {
        return {memory.take<T>(across().tokens(shape), base::kv_a()).columns_at(0, of.kv_lora_rank)};
    }
    [[nodiscard]] constexpr matrix<T> latents(matrix<T> c_kv) const { return {c_kv.data, c_kv.rows, base::kv_a()}; }
    template <class N> [[nodiscard]] constexpr matrix<N> rotary(matrix<N> of_latents) const {
        return of_latents.columns_at(of.kv_lora_rank, of.qk_rope_head_dim);
    }
    /// Normed latents of this rank's tokens; gathered, of whole sequences.
    template <class Queue>
    void make_latents(Queue& queue, const detail::context_places& places, const parameters<T>& p, const saved& s,
                      tensor<T, axis::tokens, axis::q_latent> c_q,
                      tensor<T, axis::tokens, axis::kv_latent> c_kv) const {
        if (rings()) return base::norm_latents(queue, p, s, c_q, c_kv);
        const matrix<T> whole = latents(c_kv), own = across().own(whole, s.a.rows);
        base::norm_latents(queue, p, s, c_q, own.columns_at(0, of.kv_lora_rank));
        ops::copy(queue, rotary(own), base::own_rotary(s.a));
        across().gather(queue, places, whole, "latents of sequences");
    }

    /// What travels round the ring: a token's [keys and values | rotary key].
    [[nodiscard]] constexpr integer ring_width() const { return base::keys_values() + of.qk_rope_head_dim; }
    [[nodiscard]] auto ring_operands() const {
        return [this]<class N>(matrix<N> q, std::type_identity_t<matrix<N>> rows) {
            return base::template operands<N>(q, rows.columns_at(0, base::keys_values()),
                                              rows.columns_at(base::keys_values(), of.qk_rope_head_dim));
        };
    }
    template <class Queue>
    void fill_ring(Queue& queue, const detail::context_places& places, const saved& s, const workspace& w,
                   matrix<T> kv) const {
        const matrix<T> own = w.ring.own(places);
        ops::copy(queue, own.columns_at(0, base::keys_values()), kv);
        ops::copy(queue, own.columns_at(base::keys_values(), of.qk_rope_head_dim), base::own_rotary(s.a));
    }
};

}  // namespace fathom::nn
