// Attention's forward: an online softmax over panels of keys, so that memory does not grow with the square of a
// sequence.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fathom/core/error.hpp>
#include <fathom/core/number.hpp>
#include <fathom/device/host/queue.hpp>
#include <fathom/ops/attention/attention_operands.hpp>
#include <fathom/ops/attention/detail/rows.hpp>
#include <fathom/ops/attention/scratch.hpp>
#include <fathom/ops/lane_reduce.hpp>
#include <fathom/ops/product/gemm.hpp>
#include <fathom/tensor/matrix.hpp>
#include <limits>

namespace fathom::ops {
namespace detail::attention {

/// Scores of one tile of queries become e^(score - maximum) in place; `maximum`, `sum` and `mixed`, which hold what the
/// panels before gave (nothing if `is_first`), move to the new maximum. Dao 2023, algorithm 1.
template <class A>
void soften_tile(matrix<A> scores, integer first_query, integer first_key, const std::int32_t* starts, bool is_first,
                 A* maximum, A* sum, matrix<A> mixed) {
    for (integer r = 0; r < scores.rows; ++r) {
        A* row = scores.row(r);
        const seen_columns seen{first_query + r, starts[first_query + r], first_key, scores.width};
        if (is_first) {
            maximum[r] = -std::numeric_limits<A>::infinity();
            sum[r] = 0;
        }
        seen.clear_rest(row, scores.width);
        if (seen.from == seen.to) continue;
        seen.mask_lanes(row);
        const integer count = seen.lane_to - seen.lane_from;
        const A highest = std::max(maximum[r], lane_maximum(row + seen.lane_from, count));
        const A fade = exponential(maximum[r] - highest);
        sum[r] = sum[r] * fade + exponentials(row + seen.lane_from, count, highest);
        maximum[r] = highest;
        if (is_first || fade == A{1}) continue;
        for (integer c = 0; c < mixed.width; ++c) mixed(r, c) *= fade;
    }
}

/// One task of the forward: queries [first, last) of the sequence that starts at token `origin`, one head.
template <class T, class A>
void attend_block(const attention_facts& facts, const attention_operands<const T>& in, integer origin, integer first,
                  integer last, integer head, const std::int32_t* starts, matrix<T> out, A* logsumexp, arena memory) {
    const forward_buffers<A> at{memory, facts};
    const auto scale = static_cast<A>(facts.scale);
    const integer begin = lowest_start(starts, first, last);
    for (integer panel = begin; panel < last; panel += key_panel) {
        const integer panel_end = std::min(panel + key_panel, last);
        const matrix<A> keys = at.keys.rows_at(0, panel_end - panel), values = at.values.rows_at(0, panel_end - panel);
        take_keys(facts, in, head / (facts.heads / facts.kv_heads), origin + panel, keys, values);
        for (integer tile = first; tile < last; tile += query_tile) {
            const integer rows = std::min(query_tile, last - tile);
            const integer lowest = lowest_start(starts, tile, tile + rows);
            const integer from = std::max(panel, lowest), width = std::min(panel_end, tile + rows) - from;
            if (width <= 0) continue;
            const bool is_first = panel <= lowest;
            const matrix<A> q = at.queries.rows_at(0, rows);
            copy_rows(in.q.rows_at(origin + tile, rows).columns_at(head * facts.qk_dim, facts.qk_dim), q, scale);
            const matrix<A> scores{at.scores.data, rows, width, score_stride};
            gemm(side::plain, side::transposed, rows, width, facts.qk_dim, A{1}, q.data, q.stride,
                 keys.row(from - panel), keys.stride, A{0}, scores.data, scores.stride);
            const matrix<A> mixed = at.mixed.rows_at(tile - first, rows);
            soften_tile(scores, tile, from, starts, is_first, at.maximum + (tile - first), at.sum + (tile - first),
                        mixed);
            gemm(side::plain, side::plain, rows, facts.v_dim, width, A{1}, scores.data, scores.stride,
                 values.row(from - panel), values.stride, is_first ? A{0} : A{1}, mixed.data, mixed.stride);
        }
    }
    for (integer r = 0; r < last - first; ++r) {
        copy_rows(at.mixed.rows_at(r, 1),
                  out.rows_at(origin + first + r, 1).columns_at(head * facts.v_dim, facts.v_dim), A{1} / at.sum[r]);
        logsumexp[origin + first + r] = at.maximum[r] + std::log(at.sum[r]);
    }
}

}  // namespace detail::attention

/// Causal softmax attention of `sequences` sequences of `length` tokens:
/// out[i] = sum over starts[i] <= j <= i of softmax_j(scale q[i] . key[j]) value[j], for each head.
/// starts[tokens] is, of each token, the index within its sequence of the first token it sees: that of its document, or
/// 0. out[tokens, heads * v_dim]; logsumexp[heads, tokens] is what the backward needs. Dao 2023, "FlashAttention-2".
/// Needs `attention_scratch<T>` bytes a worker. Errors: sizes that don't match; a start outside [0, i].
template <class T>
void attention_forward(host::queue& queue, const attention_facts& facts, integer sequences, integer length,
                       const attention_operands<const T>& in, const std::int32_t* starts, matrix<T> out,
                       matrix<accumulator_t<T>> logsumexp) {
    detail::attention::check_sizes<T>(queue, facts, sequences, length, in.q.rows);
    for (integer sequence = 0; sequence < sequences; ++sequence)
        for (integer i = 0; i < length; ++i)
            if (const integer start = starts[sequence * length + i]; start < 0 || start > i)
                fail("attention: found document start ", start, " at token ", i, " of sequence ", sequence,
                     ", expected one in [0, ", i, "]");
    const integer blocks = pieces(length, detail::attention::query_block);
    queue.enqueue(sequences * facts.heads * blocks, [&](integer task, int worker) {
        const integer block = blocks - 1 - task % blocks, head = task / blocks % facts.heads;
        const integer origin = task / (blocks * facts.heads) * length, first = block * detail::attention::query_block;
        detail::attention::attend_block(facts, in, origin, first,
                                        std::min(first + detail::attention::query_block, length), head, starts + origin,
                                        out, logsumexp.row(head), queue.scratch(worker));
    });
}

}  // namespace fathom::ops
