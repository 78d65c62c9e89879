// Multi-head latent attention (MLA), with and without a latent for queries: the attention of DeepSeek-V2 and V3.
#pragma once

#include <algorithm>
#include <fathom/core/number.hpp>
#include <fathom/nn/context_exchange.hpp>
#include <fathom/nn/detail/hold_gradient.hpp>
#include <fathom/nn/micro_batch.hpp>
#include <fathom/nn/parameter.hpp>
#include <fathom/nn/project.hpp>
#include <fathom/ops/attention.hpp>
#include <fathom/ops/elementwise.hpp>
#include <fathom/ops/rms_norm.hpp>
#include <fathom/ops/rotary.hpp>
#include <fathom/tensor/arena.hpp>
#include <type_traits>

namespace fathom::nn {

/// Sizes and switches of an MLA layer, named as in a Hugging Face config.
struct latent_attention_facts {
    integer hidden_size = 0;
    integer num_attention_heads = 0;
    integer q_lora_rank = 0;  // 0: queries come from the hidden state directly
    integer kv_lora_rank = 0;
    integer qk_nope_head_dim = 0;
    integer qk_rope_head_dim = 0;
    integer v_head_dim = 0;
    bool attention_bias = false;
    bool rope_interleave = true;
    ops::rope_facts rope{};
    split_over tensor{};   // the ranks that share the heads
    split_over context{};  // that share sequences; read by context_latent_attention alone, as `exchange` is
    context_exchange exchange = context_exchange::all_gather;

    [[nodiscard]] constexpr integer qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
};

/// y += o(attention(...)): c_q = norm(W_qa x), q = W_qb c_q; [c_kv | k_r] = W_kva x, [k | v] = W_kvb norm(c_kv); the
/// rotary key k_r has no norm and all heads share it (DeepSeek-V2 report, section 2.1). The latent norms' epsilon is
/// 1e-6 whatever the config says. Where tensor ranks share the heads, each has all latents and its heads' part of y, dx
/// and of the gradients of what all ranks hold: the sums over ranks are the whole. Rank 0 adds the bias of o_proj.
template <class T> struct latent_attention {
    using A = accumulator_t<T>;
    using facts = latent_attention_facts;
    static constexpr double latent_norm_eps = 1e-6;

    latent_attention_facts of;
    recomputation again{};

    template <class E> struct parameters {
        tensor<E, axis::latent_input, axis::hidden> a;  // q_a_proj (or q_proj) above kv_a_proj_with_mqa: one product
        tensor<E, axis::one, axis::latent_input> a_bias;
        tensor<E, axis::one, axis::q_latent> q_norm;
        tensor<E, axis::queries, axis::q_latent> q_b;
        tensor<E, axis::one, axis::kv_latent> kv_norm;
        tensor<E, axis::keys_values, axis::kv_latent> kv_b;
        tensor<E, axis::hidden, axis::values> o;
        tensor<E, axis::one, axis::hidden> o_bias;
    };
    struct saved {
        tensor<const T, axis::tokens, axis::hidden> x;
        tensor<T, axis::tokens, axis::latent_input> a;
        matrix<A> q_inverse_rms, kv_inverse_rms;
        tensor<T, axis::tokens, axis::q_latent> c_q;
        tensor<T, axis::tokens, axis::kv_latent> c_kv;
        tensor<T, axis::tokens, axis::queries> q;
        tensor<T, axis::tokens, axis::keys_values> kv;
        tensor<T, axis::tokens, axis::values> out;
        matrix<A> logsumexp;
    };
    struct deferred {
        tensor<T, axis::tokens, axis::hidden> kept_dy;
        tensor<const T, axis::tokens, axis::hidden> dy;
        tensor<T, axis::tokens, axis::q_latent> c_q;
        tensor<T, axis::tokens, axis::kv_latent> c_kv;
        tensor<T, axis::tokens, axis::queries> dq;
        tensor<T, axis::tokens, axis::keys_values> dkv;
        tensor<T, axis::tokens, axis::latent_input> da;
        matrix<A> dq_norm, dkv_norm;
    };
    struct workspace {
        tensor<T, axis::tokens, axis::q_latent> c_q, dc_q;
        tensor<T, axis::tokens, axis::kv_latent> c_kv, dc_kv;
        tensor<T, axis::tokens, axis::queries> q;
        tensor<T, axis::tokens, axis::keys_values> kv;
        tensor<T, axis::tokens, axis::values> dout;
        matrix<A> shared_parts, norm_partials;
    };

    /// Columns of `a` before the kv latent: the query latent, or the queries themselves.
    [[nodiscard]] constexpr integer lead() const { return latent_queries() ? of.q_lora_rank : queries(); }
    [[nodiscard]] constexpr bool latent_queries() const { return of.q_lora_rank > 0; }
    /// Heads of this rank; the widths below are theirs.
    [[nodiscard]] constexpr integer own_heads() const { return of.tensor.share(of.num_attention_heads); }
    [[nodiscard]] constexpr integer queries() const { return own_heads() * of.qk_head_dim(); }
    [[nodiscard]] constexpr integer keys_values() const { return own_heads() * (of.qk_nope_head_dim + of.v_head_dim); }
    [[nodiscard]] constexpr integer values() const { return own_heads() * of.v_head_dim; }
    [[nodiscard]] constexpr integer kv_a() const { return of.kv_lora_rank + of.qk_rope_head_dim; }

    template <class P, class Visit> constexpr void each_parameter(P& p, Visit&& visit) const {
        const integer heads = of.num_attention_heads;
        const part from_input = latent_queries()
                                    ? part{.name = "q_a_proj.weight", .rows = lead()}
                                    : rows_over(of.tensor, {.name = "q_proj.weight", .rows = heads * of.qk_head_dim()});
        visit(p.a,
              storage{.rows = lead() + kv_a(),
                      .width = of.hidden_size,
                      .parts = {{from_input, {.name = "kv_a_proj_with_mqa.weight", .rows = kv_a(), .first = lead()}}}});
        if (of.attention_bias) {
            // A bias is a row, so its parts are columns: named as two vectors of one storage.
            if (latent_queries())
                visit(p.a_bias, split_bias("q_a_proj.bias", lead(), "kv_a_proj_with_mqa.bias", kv_a()));
            if (!latent_queries()) visit(p.a_bias, bias("kv_a_proj_with_mqa.bias", kv_a()));
        }
        if (latent_queries()) {
            visit(p.q_norm, gain("q_a_layernorm.weight", of.q_lora_rank));
            visit(p.q_b, of_heads("q_b_proj.weight", of.qk_head_dim(), of.q_lora_rank));
        }
        visit(p.kv_norm, gain("kv_a_layernorm.weight", of.kv_lora_rank));
        visit(p.kv_b, of_heads("kv_b_proj.weight", of.qk_nope_head_dim + of.v_head_dim, of.kv_lora_rank));
        visit(p.o, columns_over(of.tensor, weight("o_proj.weight", of.hidden_size, heads * of.v_head_dim)));
        if (of.attention_bias) visit(p.o_bias, bias("o_proj.bias", of.hidden_size));
    }

    constexpr saved keep(arena& memory, extents shape) const { return keep(memory, whole(shape)); }
    constexpr deferred defer(arena& memory, extents shape, bool apart) const {
        return defer(memory, whole(shape), apart);
    }
    constexpr workspace work(arena& memory, extents shape) const { return work(memory, whole(shape)); }
    [[nodiscard]] constexpr integer scratch(extents shape) const {
        return std::max(ops::attention_scratch<T>(heads(0), shape.length), ops::product_scratch<T>());
    }
    [[nodiscard]] constexpr integer matrix_parameters() const {
        return (lead() + kv_a()) * of.hidden_size + (latent_queries() ? queries() * of.q_lora_rank : 0) +
               keys_values() * of.kv_lora_rank + of.hidden_size * values();
    }
    /// Multiply-adds of scores and weighted values for one query and one key.
    [[nodiscard]] constexpr integer products_per_pair() const {
        return own_heads() * (of.qk_head_dim() + of.v_head_dim);
    }

    template <class Queue>
    void forward(Queue& queue, const micro_batch<A>& batch, const parameters<T>& p,
                 tensor<const T, axis::tokens, axis::hidden> x, saved& s, workspace& w,
                 tensor<T, axis::tokens, axis::hidden> y) const {
        project_in(queue, batch, p, x, s);
        const auto c_q = again.norms ? w.c_q : s.c_q;
        const auto c_kv = again.norms ? w.c_kv : s.c_kv;
        const auto q = queries_of(s, w);
        const auto kv = again.up_projections ? w.kv : s.kv;
        norm_latents(queue, p, s, c_q, c_kv);
        up_project(queue, batch, p, c_q, c_kv, q, kv);
        ops::attention_forward<T>(queue, heads(scale()), batch.shape.sequences, batch.shape.length,
                                  operands<const T>(q, kv, own_rotary(s.a)), batch.starts, s.out, s.logsumexp);
        project_out(queue, p, s, y);
    }

    template <class Queue>
    void backward_input(Queue& queue, const micro_batch<A>& batch, const parameters<T>& p, saved& s,
                        tensor<const T, axis::tokens, axis::hidden> dy, deferred& d, workspace& w,
                        tensor<T, axis::tokens, axis::hidden> dx) const {
        detail::hold_gradient(queue, dy, d);
        if (again.norms)
            norm_latents(queue, p, s, d.c_q, d.c_kv);
        else
            d.c_q = s.c_q, d.c_kv = s.c_kv;
        const auto q = queries_of(s, w);
        const auto kv = again.up_projections ? w.kv : s.kv;
        if (again.up_projections) up_project(queue, batch, p, d.c_q, d.c_kv, q, kv);
        project_input(queue, w.dout, dy, p.o);
        ops::attention_backward<T>(queue, heads(scale()), batch.shape.sequences, batch.shape.length,
                                   operands<const T>(q, kv, own_rotary(s.a)), batch.starts, s.out, s.logsumexp, w.dout,
                                   operands<T>(query_gradients(d), d.dkv, own_rotary(d.da)), w.shared_parts);
        project_input(queue, w.dc_kv, d.dkv, p.kv_b);
        finish_backward(queue, batch, p, s, d, w, w.dc_kv, dx);
    }

    template <class Queue>
    void backward_weight(Queue& queue, const saved& s, const deferred& d, parameters<A>& gradients) const {
        project_weight(queue, gradients.o, d.dy, s.out);
        if (latent_queries()) {
            project_weight(queue, gradients.q_b, d.dq, d.c_q);
            ops::add(queue, gradients.q_norm, d.dq_norm);
        }
        project_weight(queue, gradients.kv_b, d.dkv, d.c_kv);
        ops::add(queue, gradients.kv_norm, d.dkv_norm);
        project_weight(queue, gradients.a, d.da, s.x);
        if (of.attention_bias) ops::bias_weight(queue, gradients.a_bias, biased(d.da));
        if (adds_bias()) ops::bias_weight(queue, gradients.o_bias, d.dy);
    }

    /// visit(operation, name, view) for what forward kept, in the order in which it was made.
    template <class Visit> void each_saved(const saved& s, Visit&& visit) const {
        visit("projections of the input", "a", s.a);
        visit("norm of the query latent", "c_q", s.c_q);
        visit("norm of the key-value latent", "c_kv", s.c_kv);
        visit("q_b_proj and rotation", "q", s.q);
        visit("kv_b_proj", "kv", s.kv);
        visit("attention", "out", s.out);
        visit("attention", "logsumexp", s.logsumexp);
    }

    [[nodiscard]] constexpr ops::attention_facts heads(double scale) const {
        return {.heads = own_heads(),
                .kv_heads = own_heads(),
                .qk_dim = of.qk_head_dim(),
                .v_dim = of.v_head_dim,
                .shared_dim = of.qk_rope_head_dim,
                .scale = scale};
    }

  protected:
    template <class Layer> friend struct decoder;  // generates with this layer's own steps
    /// Tokens whose numbers lie in memory: of the layer's input, of normed latents, of keys and values, and of those
    /// keys that one call of attention sees. They differ where a layer attends to other ranks' tokens.
    struct row_counts {
        integer tokens, latents, keys, seen_keys;
    };
    static constexpr row_counts whole(extents shape) {
        return {shape.tokens(), shape.tokens(), shape.tokens(), shape.tokens()};
    }
    constexpr saved keep(arena& memory, row_counts n) const {
        saved s;
        s.a = memory.take<T>(n.tokens, lead() + kv_a());
        s.q_inverse_rms = latent_queries() ? memory.take<A>(1, n.tokens) : matrix<A>{};
        s.kv_inverse_rms = memory.take<A>(1, n.tokens);
        if (!again.norms) {
            if (latent_queries()) s.c_q = memory.take<T>(n.tokens, of.q_lora_rank);
            s.c_kv = memory.take<T>(n.latents, of.kv_lora_rank);
        }
        if (!again.up_projections) {
            if (latent_queries()) s.q = memory.take<T>(n.tokens, queries());
            s.kv = memory.take<T>(n.keys, keys_values());
        }
        s.out = memory.take<T>(n.tokens, values());
        s.logsumexp = memory.take<A>(own_heads(), n.tokens);
        return s;
    }
    constexpr deferred defer(arena& memory, row_counts n, bool apart) const {
        deferred d;
        if (apart) d.kept_dy = memory.take<T>(n.tokens, of.hidden_size);
        if (again.norms) {
            if (latent_queries()) d.c_q = memory.take<T>(n.tokens, of.q_lora_rank);
            d.c_kv = memory.take<T>(n.latents, of.kv_lora_rank);
        }
        if (latent_queries()) {
            d.dq = memory.take<T>(n.tokens, queries());
            d.dq_norm = memory.take<A>(1, of.q_lora_rank);
        }
        d.dkv = memory.take<T>(n.keys, keys_values());
        d.da = memory.take<T>(n.tokens, lead() + kv_a());
        d.dkv_norm = memory.take<A>(1, of.kv_lora_rank);
        return d;
    }
    constexpr workspace work(arena& memory, row_counts n) const {
        workspace w;
        if (again.norms) {
            if (latent_queries()) w.c_q = memory.take<T>(n.tokens, of.q_lora_rank);
            w.c_kv = memory.take<T>(n.latents, of.kv_lora_rank);
        }
        if (again.up_projections) {
            if (latent_queries()) w.q = memory.take<T>(n.tokens, queries());
            w.kv = memory.take<T>(n.keys, keys_values());
        }
        if (latent_queries()) w.dc_q = memory.take<T>(n.tokens, of.q_lora_rank);
        w.dc_kv = memory.take<T>(n.latents, of.kv_lora_rank);
        w.dout = memory.take<T>(n.tokens, values());
        w.shared_parts = memory.take<A>(n.seen_keys, own_heads() * of.qk_rope_head_dim);
        w.norm_partials =
            memory.take<A>(pieces(n.tokens, ops::rms_norm_rows), std::max(of.q_lora_rank, of.kv_lora_rank));
        return w;
    }
    /// Not known at compile time: it takes a logarithm.
    [[nodiscard]] double scale() const { return ops::softmax_scale(of.rope, of.qk_head_dim()); }
    [[nodiscard]] constexpr bool adds_bias() const { return of.attention_bias && of.tensor.rank == 0; }
    /// A matrix whose rows are `each` of one head after another.
    [[nodiscard]] constexpr storage of_heads(const char* name, integer each, integer width) const {
        const part here = rows_over(of.tensor, {.name = name, .rows = of.num_attention_heads * each});
        return {.rows = here.rows, .width = width, .parts = {{here}}};
    }
    static constexpr storage split_bias(const char* first, integer first_width, const char* second,
                                        integer second_width) {
        return {.rows = first_width + second_width,
                .width = 1,
                .start = initial::zero,
                .vector = true,
                .parts = {{{.name = first, .rows = first_width},
                           {.name = second, .rows = second_width, .first = first_width}}}};
    }
    /// The columns of `a` that have a bias.
    [[nodiscard]] constexpr matrix<T> biased(matrix<T> a) const {
        return latent_queries() ? a : a.columns_at(lead(), kv_a());
    }
    /// The rotary keys of the layer's own tokens, in `a` or its gradient.
    [[nodiscard]] constexpr matrix<T> own_rotary(matrix<T> a) const {
        return a.columns_at(lead() + of.kv_lora_rank, of.qk_rope_head_dim);
    }
    [[nodiscard]] tensor<T, axis::tokens, axis::queries> queries_of(const saved& s, const workspace& w) const {
        if (latent_queries()) return again.up_projections ? w.q : s.q;
        return s.a.template part<axis::queries>(0, queries());
    }
    [[nodiscard]] tensor<T, axis::tokens, axis::queries> query_gradients(const deferred& d) const {
        return latent_queries() ? d.dq : d.da.template part<axis::queries>(0, queries());
    }
    template <class N>
    [[nodiscard]] ops::attention_operands<N> operands(std::type_identity_t<matrix<N>> q,
                                                      std::type_identity_t<matrix<N>> kv,
                                                      std::type_identity_t<matrix<N>> shared) const {
        return {.q = q,
                .k = kv,
                .k_head_stride = of.qk_nope_head_dim + of.v_head_dim,
                .shared = shared,
                .v = kv.columns_at(of.qk_nope_head_dim, kv.width - of.qk_nope_head_dim),
                .v_head_stride = of.qk_nope_head_dim + of.v_head_dim};
    }
    /// The one product of the input, with its bias and the rotations of what it gives.
    template <class Queue>
    void project_in(Queue& queue, const micro_batch<A>& batch, const parameters<T>& p,
                    tensor<const T, axis::tokens, axis::hidden> x, saved& s) const {
        s.x = x;
        project(queue, s.a, x, p.a);
        if (of.attention_bias) ops::add_bias(queue, biased(s.a), p.a_bias);
        rotate(queue, batch, own_rotary(s.a), 1, of.qk_rope_head_dim, 0, false);
        if (!latent_queries()) rotate_queries(queue, batch, s.a.columns_at(0, queries()), false);
    }
    template <class Queue>
    void project_out(Queue& queue, const parameters<T>& p, const saved& s,
                     tensor<T, axis::tokens, axis::hidden> y) const {
        project(queue, y, s.out, p.o, true);
        if (adds_bias()) ops::add_bias(queue, y, p.o_bias);
    }
    /// From the gradients of queries, rotary keys and the normed kv latent to that of the input.
    template <class Queue>
    void finish_backward(Queue& queue, const micro_batch<A>& batch, const parameters<T>& p, const saved& s, deferred& d,
                         workspace& w, tensor<T, axis::tokens, axis::kv_latent> dc_kv,
                         tensor<T, axis::tokens, axis::hidden> dx) const {
        rotate(queue, batch, own_rotary(d.da), 1, of.qk_rope_head_dim, 0, true);
        const auto dq = query_gradients(d);
        rotate_queries(queue, batch, dq, true);
        if (latent_queries()) {
            project_input(queue, w.dc_q, dq, p.q_b);
            ops::fill_zero(queue, d.dq_norm.data, of.q_lora_rank);
            ops::rms_norm_backward<T>(queue, d.da.columns_at(0, of.q_lora_rank), false, d.dq_norm.data, w.dc_q,
                                      s.a.columns_at(0, of.q_lora_rank), s.q_inverse_rms.data, p.q_norm.data,
                                      w.norm_partials.columns_at(0, of.q_lora_rank));
        }
        ops::fill_zero(queue, d.dkv_norm.data, of.kv_lora_rank);
        ops::rms_norm_backward<T>(queue, d.da.columns_at(lead(), of.kv_lora_rank), false, d.dkv_norm.data, dc_kv,
                                  s.a.columns_at(lead(), of.kv_lora_rank), s.kv_inverse_rms.data, p.kv_norm.data,
                                  w.norm_partials.columns_at(0, of.kv_lora_rank));
        project_input(queue, dx, d.da, p.a);
    }
    template <class Queue>
    void rotate(Queue& queue, const micro_batch<A>& batch, matrix<T> x, integer count, integer head_stride,
                integer first, bool inverse) const {
        ops::rotate<T>(queue, x, first, head_stride, count, of.qk_rope_head_dim, of.rope_interleave, batch.positions,
                       batch.cosines, batch.sines, inverse);
    }
    template <class Queue>
    void rotate_queries(Queue& queue, const micro_batch<A>& batch, matrix<T> q, bool inverse) const {
        rotate(queue, batch, q, own_heads(), of.qk_head_dim(), of.qk_nope_head_dim, inverse);
    }
    template <class Queue, class Q, class KV>
    void norm_latents(Queue& queue, const parameters<T>& p, const saved& s, Q c_q, KV c_kv) const {
        if (latent_queries())
            ops::rms_norm<T>(queue, c_q, s.q_inverse_rms.data, s.a.columns_at(0, of.q_lora_rank), p.q_norm.data,
                             latent_norm_eps);
        ops::rms_norm<T>(queue, c_kv, s.kv_inverse_rms.data, s.a.columns_at(lead(), of.kv_lora_rank), p.kv_norm.data,
                         latent_norm_eps);
    }
    template <class Queue, class CQ, class CKV, class Q, class KV>
    void up_project(Queue& queue, const micro_batch<A>& batch, const parameters<T>& p, CQ c_q, CKV c_kv, Q q,
                    KV kv) const {
        if (latent_queries()) {
            project(queue, q, c_q, p.q_b);
            rotate_queries(queue, batch, q, false);
        }
        project(queue, kv, c_kv, p.kv_b);
    }
};

}  // namespace fathom::nn
