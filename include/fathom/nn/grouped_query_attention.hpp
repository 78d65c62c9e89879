// Grouped-query attention (GQA, and MHA as its special case): the attention of DeepSeek LLM and DeepSeekMoE.
#pragma once

#include <algorithm>
#include <array>
#include <fathom/core/number.hpp>
#include <fathom/nn/context_exchange.hpp>
#include <fathom/nn/detail/hold_gradient.hpp>
#include <fathom/nn/micro_batch.hpp>
#include <fathom/nn/parameter.hpp>
#include <fathom/nn/project.hpp>
#include <fathom/ops/attention.hpp>
#include <fathom/ops/elementwise.hpp>
#include <fathom/ops/rotary.hpp>
#include <fathom/tensor/arena.hpp>
#include <type_traits>

namespace fathom::nn {

/// Sizes and switches of a GQA layer, named as in a Hugging Face config.
struct grouped_query_attention_facts {
    integer hidden_size = 0;
    integer num_attention_heads = 0;
    integer num_key_value_heads = 0;
    integer head_dim = 0;
    bool attention_bias = false;
    ops::rope_facts rope{};
    split_over tensor{};   // the ranks that share the heads
    split_over context{};  // that share sequences; read by context_grouped_query_attention alone, as `exchange` is
    context_exchange exchange = context_exchange::all_gather;
};

/// y += o(attention(q, k, v)) with rotary embeddings over the whole head, half-split as Llama pairs them
/// (Ainslie et al., "GQA", 2023; Su et al., "RoFormer", 2021). Where tensor ranks share the heads, each has its heads'
/// part of y and dx: the sums over ranks are the whole. With more ranks than kv heads, adjacent ranks hold the same kv
/// head and each its part of that head's gradients. Rank 0 adds the bias of o_proj.
template <class T> struct grouped_query_attention {
    using A = accumulator_t<T>;
    using facts = grouped_query_attention_facts;

    grouped_query_attention_facts of;
    recomputation again{};

    template <class E> struct parameters {
        tensor<E, axis::queries_keys_values, axis::hidden> qkv;  // q_proj above k_proj above v_proj: one product
        tensor<E, axis::one, axis::queries_keys_values> qkv_bias;
        tensor<E, axis::hidden, axis::values> o;
        tensor<E, axis::one, axis::hidden> o_bias;
    };
    struct saved {
        tensor<const T, axis::tokens, axis::hidden> x;
        tensor<T, axis::tokens, axis::queries_keys_values> qkv;
        tensor<T, axis::tokens, axis::values> out;
        matrix<A> logsumexp;
    };
    struct deferred {
        tensor<T, axis::tokens, axis::hidden> kept_dy;
        tensor<const T, axis::tokens, axis::hidden> dy;
        tensor<T, axis::tokens, axis::queries_keys_values> dqkv;
    };
    struct workspace {
        tensor<T, axis::tokens, axis::queries_keys_values> qkv;
        tensor<T, axis::tokens, axis::values> dout;
    };

    /// Heads and kv heads of this rank; the widths below are theirs.
    [[nodiscard]] constexpr integer own_heads() const { return of.tensor.share(of.num_attention_heads); }
    [[nodiscard]] constexpr integer own_kv_heads() const {
        return std::max<integer>(1, of.tensor.share(of.num_key_value_heads));
    }
    [[nodiscard]] constexpr integer queries() const { return own_heads() * of.head_dim; }
    [[nodiscard]] constexpr integer keys() const { return own_kv_heads() * of.head_dim; }
    [[nodiscard]] constexpr integer all() const { return queries() + 2 * keys(); }

    template <class P, class Visit> constexpr void each_parameter(P& p, Visit&& visit) const {
        const integer q = queries(), k = keys(), whole = of.num_attention_heads * of.head_dim;
        const auto parts = [&](const char* of_q, const char* of_k, const char* of_v) {
            return std::array<part, 3>{rows_over(of.tensor, {.name = of_q, .rows = whole}),
                                       kv_rows({.name = of_k, .first = q}), kv_rows({.name = of_v, .first = q + k})};
        };
        visit(p.qkv, storage{.rows = all(),
                             .width = of.hidden_size,
                             .parts = parts("q_proj.weight", "k_proj.weight", "v_proj.weight")});
        if (of.attention_bias)
            visit(p.qkv_bias, storage{.rows = all(),
                                      .width = 1,
                                      .start = initial::zero,
                                      .vector = true,
                                      .parts = parts("q_proj.bias", "k_proj.bias", "v_proj.bias")});
        visit(p.o, columns_over(of.tensor, weight("o_proj.weight", of.hidden_size, whole)));
        if (of.attention_bias) visit(p.o_bias, bias("o_proj.bias", of.hidden_size));
    }

    constexpr saved keep(arena& memory, extents shape) const {
        saved s;
        if (!again.up_projections) s.qkv = memory.take<T>(shape.tokens(), all());
        s.out = memory.take<T>(shape.tokens(), queries());
        s.logsumexp = memory.take<A>(own_heads(), shape.tokens());
        return s;
    }
    constexpr deferred defer(arena& memory, extents shape, bool apart) const {
        deferred d;
        if (apart) d.kept_dy = memory.take<T>(shape.tokens(), of.hidden_size);
        d.dqkv = memory.take<T>(shape.tokens(), all());
        return d;
    }
    constexpr workspace work(arena& memory, extents shape) const {
        workspace w;
        if (again.up_projections) w.qkv = memory.take<T>(shape.tokens(), all());
        w.dout = memory.take<T>(shape.tokens(), queries());
        return w;
    }
    [[nodiscard]] constexpr integer scratch(extents shape) const {
        return std::max(ops::attention_scratch<T>(heads(0), shape.length), ops::product_scratch<T>());
    }
    [[nodiscard]] constexpr integer matrix_parameters() const { return (all() + queries()) * of.hidden_size; }
    /// Multiply-adds of scores and weighted values for one query and one key.
    [[nodiscard]] constexpr integer products_per_pair() const { return own_heads() * 2 * of.head_dim; }

    template <class Queue>
    void forward(Queue& queue, const micro_batch<A>& batch, const parameters<T>& p,
                 tensor<const T, axis::tokens, axis::hidden> x, saved& s, workspace& w,
                 tensor<T, axis::tokens, axis::hidden> y) const {
        s.x = x;
        const auto qkv = again.up_projections ? w.qkv : s.qkv;
        make_queries_keys_values(queue, batch, p, x, qkv);
        ops::attention_forward<T>(queue, heads(scale()), batch.shape.sequences, batch.shape.length,
                                  operands<const T>(own_queries(qkv), own_keys_values(qkv)), batch.starts, s.out,
                                  s.logsumexp);
        project_out(queue, p, s, y);
    }

    template <class Queue>
    void backward_input(Queue& queue, const micro_batch<A>& batch, const parameters<T>& p, saved& s,
                        tensor<const T, axis::tokens, axis::hidden> dy, deferred& d, workspace& w,
                        tensor<T, axis::tokens, axis::hidden> dx) const {
        detail::hold_gradient(queue, dy, d);
        const auto qkv = again.up_projections ? w.qkv : s.qkv;
        if (again.up_projections) make_queries_keys_values(queue, batch, p, s.x, qkv);
        project_input(queue, w.dout, dy, p.o);
        ops::attention_backward<T>(queue, heads(scale()), batch.shape.sequences, batch.shape.length,
                                   operands<const T>(own_queries(qkv), own_keys_values(qkv)), batch.starts, s.out,
                                   s.logsumexp, w.dout, operands<T>(own_queries(d.dqkv), own_keys_values(d.dqkv)), {});
        rotate(queue, batch, d.dqkv, true);
        project_input(queue, dx, d.dqkv, p.qkv);
    }

    template <class Queue>
    void backward_weight(Queue& queue, const saved& s, const deferred& d, parameters<A>& gradients) const {
        project_weight(queue, gradients.o, d.dy, s.out);
        project_weight(queue, gradients.qkv, d.dqkv, s.x);
        if (of.attention_bias) ops::bias_weight(queue, gradients.qkv_bias, d.dqkv);
        if (adds_bias()) ops::bias_weight(queue, gradients.o_bias, d.dy);
    }

    /// visit(operation, name, view) for what forward kept, in the order in which it was made.
    template <class Visit> void each_saved(const saved& s, Visit&& visit) const {
        visit("projections of the input and rotation", "qkv", s.qkv);
        visit("attention", "out", s.out);
        visit("attention", "logsumexp", s.logsumexp);
    }

    [[nodiscard]] constexpr ops::attention_facts heads(double scale) const {
        return {.heads = own_heads(),
                .kv_heads = own_kv_heads(),
                .qk_dim = of.head_dim,
                .v_dim = of.head_dim,
                .shared_dim = 0,
                .scale = scale};
    }

  protected:
    template <class Layer> friend struct decoder;  // generates with this layer's own steps
    /// Not known at compile time: it takes a logarithm.
    [[nodiscard]] double scale() const { return ops::softmax_scale(of.rope, of.head_dim); }
    [[nodiscard]] constexpr bool adds_bias() const { return of.attention_bias && of.tensor.rank == 0; }
    /// This rank's rows of all keys or values.
    [[nodiscard]] constexpr part kv_rows(part rows) const {
        rows.rows = of.num_key_value_heads * of.head_dim;
        if (of.tensor.ranks <= of.num_key_value_heads) return rows_over(of.tensor, rows);
        rows.of_rows = rows.rows;
        rows.rows = of.head_dim;
        rows.copies = of.tensor.ranks / of.num_key_value_heads;
        rows.row = of.tensor.rank / rows.copies * of.head_dim;
        return rows;
    }
    [[nodiscard]] constexpr matrix<T> own_queries(matrix<T> qkv) const { return qkv.columns_at(0, queries()); }
    /// kv[tokens, keys above values]
    [[nodiscard]] constexpr matrix<T> own_keys_values(matrix<T> qkv) const {
        return qkv.columns_at(queries(), 2 * keys());
    }
    template <class N>
    [[nodiscard]] ops::attention_operands<N> operands(std::type_identity_t<matrix<N>> q,
                                                      std::type_identity_t<matrix<N>> kv) const {
        return {.q = q,
                .k = kv,
                .k_head_stride = of.head_dim,
                .shared = {},
                .v = kv.columns_at(keys(), keys()),
                .v_head_stride = of.head_dim};
    }
    template <class Queue>
    void project_out(Queue& queue, const parameters<T>& p, const saved& s,
                     tensor<T, axis::tokens, axis::hidden> y) const {
        project(queue, y, s.out, p.o, true);
        if (adds_bias()) ops::add_bias(queue, y, p.o_bias);
    }
    template <class Queue, class X, class QKV>
    void make_queries_keys_values(Queue& queue, const micro_batch<A>& batch, const parameters<T>& p, X x,
                                  QKV qkv) const {
        project(queue, qkv, x, p.qkv);
        if (of.attention_bias) ops::add_bias(queue, qkv, p.qkv_bias);
        rotate(queue, batch, qkv, false);
    }
    /// Queries and keys lie side by side in heads of one width, so one call turns both.
    template <class Queue> void rotate(Queue& queue, const micro_batch<A>& batch, matrix<T> qkv, bool inverse) const {
        ops::rotate<T>(queue, qkv, 0, of.head_dim, own_heads() + own_kv_heads(), of.head_dim, false, batch.positions,
                       batch.cosines, batch.sines, inverse);
    }
};

}  // namespace fathom::nn
