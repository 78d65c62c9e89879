// Attention's backward: the weights come back from the scores and the forward's logsumexp, so none of them are saved.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fathom/core/number.hpp>
#include <fathom/device/host/queue.hpp>
#include <fathom/ops/attention/attention_operands.hpp>
#include <fathom/ops/attention/detail/rows.hpp>
#include <fathom/ops/attention/place_run.hpp>
#include <fathom/ops/attention/scratch.hpp>
#include <fathom/ops/lane_reduce.hpp>
#include <fathom/ops/product/gemm.hpp>
#include <fathom/tensor/matrix.hpp>
#include <span>
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

/// One task of the backward: one kv head of one sequence, all its queries.
template <class T, class A, class G>
void attend_backward(const attention_facts& facts, const attention_operands<const T>& in, integer sequence,
                     std::span<const place_run> queries, std::span<const place_run> key_runs, integer kv_head,
                     const std::int32_t* starts, matrix<const T> out, matrix<const A> logsumexp, matrix<const T> dout,
                     const attention_operands<G>& gradients, matrix<A> shared_parts, bool accumulate, arena memory) {
    const backward_buffers<A> at{memory, facts, places_in(key_runs)};
    const auto scale = static_cast<A>(facts.scale);
    const integer group = facts.heads / facts.kv_heads, own = facts.qk_dim - facts.shared_dim;
    // Scratch holds the keys of all runs one after another.
    const auto each_run = [&](auto&& visit) {
        integer first = 0;
        for (const place_run& run : key_runs) {
            visit(run, first);
            first += run.count;
        }
    };
    each_run([&](const place_run& run, integer first) {
        take_keys(facts, in, kv_head, run.row_of(sequence), at.keys.rows_at(first, run.count),
                  at.values.rows_at(first, run.count));
    });
    std::fill_n(at.key_gradients.data, at.key_gradients.size(), A{0});
    std::fill_n(at.value_gradients.data, at.value_gradients.size(), A{0});
    const auto tile_backward = [&](integer head, integer place, integer token, integer rows) {
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
        const std::int32_t* seen_from = starts + token;
        const integer lowest = lowest_start(seen_from, rows);
        bool is_first = true;
        each_run([&](const place_run& run, integer run_first) {
            const integer end = std::min(run.end(), place + rows);
            for (integer from = std::max(lowest, run.place); from < end; from += key_panel) {
                const integer width = std::min(key_panel, end - from), row = run_first + from - run.place;
                const matrix<A> keys = at.keys.rows_at(row, width), values = at.values.rows_at(row, width);
                const matrix<A> p{at.weights.data, rows, width, score_stride};
                const matrix<A> ds{at.weight_gradients.data, rows, width, score_stride};
                gemm(side::plain, side::transposed, rows, width, facts.qk_dim, A{1}, q.data, q.stride, keys.data,
                     keys.stride, A{0}, p.data, p.stride);
                gemm(side::plain, side::transposed, rows, width, facts.v_dim, A{1}, d_o.data, d_o.stride, values.data,
                     values.stride, A{0}, ds.data, ds.stride);
                for (integer r = 0; r < rows; ++r)
                    weigh_row(p.row(r), ds.row(r), width, {place + r, seen_from[r], from, width},
                              logsumexp(head, token + r), means[r]);
                gemm(side::transposed, side::plain, width, facts.v_dim, rows, A{1}, p.data, p.stride, d_o.data,
                     d_o.stride, A{1}, at.value_gradients.row(row), at.value_gradients.stride);
                gemm(side::transposed, side::plain, width, facts.qk_dim, rows, A{1}, ds.data, ds.stride, q.data,
                     q.stride, A{1}, at.key_gradients.row(row), at.key_gradients.stride);
                gemm(side::plain, side::plain, rows, facts.qk_dim, width, A{1}, ds.data, ds.stride, keys.data,
                     keys.stride, is_first ? A{0} : A{1}, dq.data, dq.stride);
                is_first = false;
            }
        });
        if (is_first) std::fill_n(dq.data, dq.size(), A{0});
        put_rows(dq, head_rows(gradients.q, facts.qk_dim), scale, accumulate);
    };
    for (integer head = kv_head * group; head < (kv_head + 1) * group; ++head)
        for (const place_run& run : queries)
            for (integer tile = 0; tile < run.count; tile += query_tile)
                tile_backward(head, run.place + tile, run.row_of(sequence) + tile,
                              std::min(query_tile, run.count - tile));
    each_run([&](const place_run& run, integer first) {
        const integer row = run.row_of(sequence);
        const matrix<A> keys = at.key_gradients.rows_at(first, run.count);
        put_rows(keys.columns_at(0, own),
                 gradients.k.rows_at(row, run.count).columns_at(kv_head * gradients.k_head_stride, own), A{1},
                 accumulate);
        put_rows(at.value_gradients.rows_at(first, run.count),
                 gradients.v.rows_at(row, run.count).columns_at(kv_head * gradients.v_head_stride, facts.v_dim), A{1},
                 accumulate);
        if (facts.shared_dim > 0)
            copy_rows(keys.columns_at(own, facts.shared_dim),
                      shared_parts.rows_at(row, run.count).columns_at(kv_head * facts.shared_dim, facts.shared_dim),
                      A{1});
    });
}

}  // namespace detail::attention

/// From dout[query tokens, heads * v_dim], and `out` and `logsumexp` of the forward over all keys, the gradients of all
/// that `in` views, of T or its accumulator; they are overwritten where `queries` and `keys` have rows, or added to
/// with `accumulate`. shared_parts[key tokens, kv_heads * shared_dim] is workspace: what each kv head adds to the
/// gradient of `shared`, summed in the order of heads. Dao 2023, "FlashAttention-2", algorithm 2. Needs
/// `attention_scratch<T>` bytes a worker. Errors: sizes that don't match.
template <class T, class G>
void attention_backward(host::queue& queue, const attention_facts& facts, integer sequences,
                        std::span<const place_run> queries, std::span<const place_run> keys,
                        const attention_operands<const T>& in, const std::int32_t* starts,
                        std::type_identity_t<matrix<const T>> out, matrix<const accumulator_t<T>> logsumexp,
                        std::type_identity_t<matrix<const T>> dout, const attention_operands<G>& gradients,
                        matrix<accumulator_t<T>> shared_parts, bool accumulate = false) {
    using A = accumulator_t<T>;
    detail::attention::check_sizes<T>(queue, facts, sequences, queries, keys, in);
    queue.enqueue(sequences * facts.kv_heads, [&](integer task, int worker) {
        detail::attention::attend_backward<T, A, G>(facts, in, task / facts.kv_heads, queries, keys,
                                                    task % facts.kv_heads, starts, out, logsumexp, dout, gradients,
                                                    shared_parts, accumulate, queue.scratch(worker));
    });
    if (facts.shared_dim == 0) return;
    constexpr integer tokens_a_task = 64;
    for (const place_run& run : keys) {
        const integer tasks = pieces(run.count, tokens_a_task);
        queue.enqueue(sequences * tasks, [&](integer task, int) {
            const integer start = task % tasks * tokens_a_task, first = run.row_of(task / tasks) + start;
            const integer count = std::min(tokens_a_task, run.count - start);
            for (integer token = first; token < first + count; ++token) {
                A* sum = shared_parts.row(token);  // the first head's part becomes the sum
                for (integer head = 1; head < facts.kv_heads; ++head)
                    for (integer c = 0; c < facts.shared_dim; ++c) sum[c] += sum[head * facts.shared_dim + c];
            }
            detail::attention::put_rows(shared_parts.rows_at(first, count).columns_at(0, facts.shared_dim),
                                        gradients.shared.rows_at(first, count), A{1}, accumulate);
        });
    }
}

/// The same of whole sequences of `length` tokens, one after another.
template <class T>
void attention_backward(host::queue& queue, const attention_facts& facts, integer sequences, integer length,
                        const attention_operands<const T>& in, const std::int32_t* starts,
                        std::type_identity_t<matrix<const T>> out, matrix<const accumulator_t<T>> logsumexp,
                        std::type_identity_t<matrix<const T>> dout, const attention_operands<T>& gradients,
                        matrix<accumulator_t<T>> shared_parts) {
    const place_run whole{.count = length, .step = length};
    attention_backward<T, T>(queue, facts, sequences, {&whole, 1}, {&whole, 1}, in, starts, out, logsumexp, dout,
                             gradients, shared_parts);
}

}  // namespace fathom::ops
