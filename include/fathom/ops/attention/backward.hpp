// Attention's backward: the weights come back from the scores and the forward's logsumexp, so none of them are saved.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fathom/core/number.hpp>
#include <fathom/device/host/queue.hpp>
#include <fathom/ops/attention/attention_operands.hpp>
#include <fathom/ops/attention/detail/rows.hpp>
#include <fathom/ops/attention/scratch.hpp>
#include <fathom/ops/lane_reduce.hpp>
#include <fathom/ops/product/gemm.hpp>
#include <fathom/tensor/matrix.hpp>
#include <type_traits>

namespace fathom::ops {
namespace detail::attention {

/// One row of scores becomes weights P = e^(score - logsumexp), and the row of dP becomes dS = P (dP - mean), where
/// mean = dout . out is the mean of dP under P.
template <class A>
void weigh_row(A* __restrict scores, A* __restrict gradients, integer width, const seen_columns& seen, A logsumexp,
               A mean) {
    seen.clear_rest(scores, width);
    seen.clear_rest(gradients, width);
    seen.mask_lanes(scores);
    for (integer j = seen.lane_from; j < seen.lane_to; ++j) {
        const A weight = exponential(scores[j] - logsumexp);
        scores[j] = weight;
        gradients[j] = weight * (gradients[j] - mean);
    }
}

/// One task of the backward: one kv head of the sequence that starts at token `origin`, all its queries.
template <class T, class A>
void attend_backward(const attention_facts& facts, const attention_operands<const T>& in, integer origin,
                     integer length, integer kv_head, const std::int32_t* starts, matrix<const T> out,
                     matrix<const A> logsumexp, matrix<const T> dout, const attention_operands<T>& gradients,
                     matrix<A> shared_parts, arena memory) {
    const backward_buffers<A> at{memory, facts, length};
    const auto scale = static_cast<A>(facts.scale);
    const integer group = facts.heads / facts.kv_heads, own = facts.qk_dim - facts.shared_dim;
    take_keys(facts, in, kv_head, origin, at.keys, at.values);
    std::fill_n(at.key_gradients.data, at.key_gradients.size(), A{0});
    std::fill_n(at.value_gradients.data, at.value_gradients.size(), A{0});
    for (integer head = kv_head * group; head < (kv_head + 1) * group; ++head)
        for (integer tile = 0; tile < length; tile += query_tile) {
            const integer rows = std::min(query_tile, length - tile), token = origin + tile;
            const auto head_rows = [&](auto of, integer dim) {
                return of.rows_at(token, rows).columns_at(head * dim, dim);
            };
            const matrix<A> q = at.queries.rows_at(0, rows), dq = at.query_gradients.rows_at(0, rows);
            const matrix<A> o = at.out.rows_at(0, rows), d_o = at.out_gradients.rows_at(0, rows);
            copy_rows(head_rows(in.q, facts.qk_dim), q, scale);
            copy_rows(head_rows(out, facts.v_dim), o, A{1});
            copy_rows(head_rows(dout, facts.v_dim), d_o, A{1});
            A means[query_tile];
            for (integer r = 0; r < rows; ++r) {
                const A *x = o.row(r), *y = d_o.row(r);
                means[r] = lane_sum<A>(facts.v_dim, [x, y](integer c) { return x[c] * y[c]; });
            }
            const integer lowest = lowest_start(starts, tile, tile + rows);
            for (integer from = lowest; from < tile + rows; from += key_panel) {
                const integer width = std::min(key_panel, tile + rows - from);
                const matrix<A> keys = at.keys.rows_at(from, width), values = at.values.rows_at(from, width);
                const matrix<A> p{at.weights.data, rows, width, score_stride};
                const matrix<A> ds{at.weight_gradients.data, rows, width, score_stride};
                gemm(side::plain, side::transposed, rows, width, facts.qk_dim, A{1}, q.data, q.stride, keys.data,
                     keys.stride, A{0}, p.data, p.stride);
                gemm(side::plain, side::transposed, rows, width, facts.v_dim, A{1}, d_o.data, d_o.stride, values.data,
                     values.stride, A{0}, ds.data, ds.stride);
                for (integer r = 0; r < rows; ++r)
                    weigh_row(p.row(r), ds.row(r), width, {tile + r, starts[tile + r], from, width},
                              logsumexp(head, token + r), means[r]);
                gemm(side::transposed, side::plain, width, facts.v_dim, rows, A{1}, p.data, p.stride, d_o.data,
                     d_o.stride, A{1}, at.value_gradients.row(from), at.value_gradients.stride);
                gemm(side::transposed, side::plain, width, facts.qk_dim, rows, A{1}, ds.data, ds.stride, q.data,
                     q.stride, A{1}, at.key_gradients.row(from), at.key_gradients.stride);
                gemm(side::plain, side::plain, rows, facts.qk_dim, width, A{1}, ds.data, ds.stride, keys.data,
                     keys.stride, from == lowest ? A{0} : A{1}, dq.data, dq.stride);
            }
            copy_rows(dq, head_rows(gradients.q, facts.qk_dim), scale);
        }
    copy_rows(at.key_gradients.columns_at(0, own),
              gradients.k.rows_at(origin, length).columns_at(kv_head * gradients.k_head_stride, own), A{1});
    copy_rows(at.value_gradients,
              gradients.v.rows_at(origin, length).columns_at(kv_head * gradients.v_head_stride, facts.v_dim), A{1});
    if (facts.shared_dim > 0)
        copy_rows(at.key_gradients.columns_at(own, facts.shared_dim),
                  shared_parts.rows_at(origin, length).columns_at(kv_head * facts.shared_dim, facts.shared_dim), A{1});
}

}  // namespace detail::attention

/// From dout[tokens, heads * v_dim], and `out` and `logsumexp` of the forward, the gradients of all that `in` views;
/// they are overwritten. shared_parts[tokens, kv_heads * shared_dim] is workspace: what each kv head adds to the
/// gradient of `shared`, summed in the order of heads. Dao 2023, "FlashAttention-2", algorithm 2. Needs
/// `attention_scratch<T>` bytes a worker. Errors: sizes that don't match.
template <class T>
void attention_backward(host::queue& queue, const attention_facts& facts, integer sequences, integer length,
                        const attention_operands<const T>& in, const std::int32_t* starts,
                        std::type_identity_t<matrix<const T>> out, matrix<const accumulator_t<T>> logsumexp,
                        std::type_identity_t<matrix<const T>> dout, const attention_operands<T>& gradients,
                        matrix<accumulator_t<T>> shared_parts) {
    using A = accumulator_t<T>;
    detail::attention::check_sizes<T>(queue, facts, sequences, length, in.q.rows);
    queue.enqueue(sequences * facts.kv_heads, [&](integer task, int worker) {
        const integer origin = task / facts.kv_heads * length;
        detail::attention::attend_backward<T, A>(facts, in, origin, length, task % facts.kv_heads, starts + origin, out,
                                                 logsumexp, dout, gradients, shared_parts, queue.scratch(worker));
    });
    if (facts.shared_dim == 0) return;
    constexpr integer tokens_a_task = 64;
    const integer tokens = sequences * length;
    queue.enqueue(pieces(tokens, tokens_a_task), [&](integer task, int) {
        const integer first = task * tokens_a_task, count = std::min(tokens_a_task, tokens - first);
        for (integer token = first; token < first + count; ++token) {
            A* sum = shared_parts.row(token);  // the first head's part becomes the sum
            for (integer head = 1; head < facts.kv_heads; ++head)
                for (integer c = 0; c < facts.shared_dim; ++c) sum[c] += sum[head * facts.shared_dim + c];
        }
        detail::attention::copy_rows(shared_parts.rows_at(first, count).columns_at(0, facts.shared_dim),
                                     gradients.shared.rows_at(first, count), A{1});
    });
}

}  // namespace fathom::ops
