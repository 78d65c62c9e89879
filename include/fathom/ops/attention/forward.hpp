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
#include <fathom/ops/attention/place_run.hpp>
#include <fathom/ops/attention/scratch.hpp>
#include <fathom/ops/lane_reduce.hpp>
#include <fathom/ops/product/gemm.hpp>
#include <fathom/tensor/matrix.hpp>
#include <limits>
#include <span>

namespace fathom::ops {
namespace detail::attention {

/// Scores of one tile of queries, at the places from `first_query` on, become e^(score - maximum) in place; `maximum`,
/// `sum` and `mixed`, which hold what the panels before gave (nothing if `is_first`), move to the new maximum. Dao
/// 2023, algorithm 1.
template <class A>
void soften_tile(matrix<A> scores, integer first_query, integer first_key, const std::int32_t* starts, bool is_first,
                 A* maximum, A* sum, matrix<A> mixed) {
    for (integer r = 0; r < scores.rows; ++r) {
        A* row = scores.row(r);
        const seen_columns seen{first_query + r, starts[r], first_key, scores.width};
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

/// One task of the forward: the queries of one sequence at `count` places from `place` on, which are the rows from
/// `row` on; one head.
template <class T, class A, class Out>
void attend_block(const attention_facts& facts, const attention_operands<const T>& in, integer sequence, integer place,
                  integer row, integer count, std::span<const place_run> key_runs, integer head,
                  const std::int32_t* starts, matrix<Out> out, A* logsumexp, bool continues, arena memory) {
    const forward_buffers<A> at{memory, facts};
    const auto scale = static_cast<A>(facts.scale);
    const auto rows_of_head = [&](auto of, integer first, integer rows, integer dim) {
        return of.rows_at(row + first, rows).columns_at(head * dim, dim);
    };
    bool begun[query_block / query_tile] = {};
    if (continues) {
        // What came before is as one key: of the score `logsumexp`, of the value `out`.
        std::fill_n(begun, query_block / query_tile, true);
        std::copy_n(logsumexp + row, count, at.maximum);
        std::fill_n(at.sum, count, A{1});
        copy_rows(rows_of_head(out, 0, count, facts.v_dim), at.mixed.rows_at(0, count), A{1});
    }
    const integer begin = lowest_start(starts + row, count);
    for (const place_run& run : key_runs) {
        const integer end = std::min(run.end(), place + count);
        for (integer panel = std::max(begin, run.place); panel < end; panel += key_panel) {
            const integer panel_end = std::min(panel + key_panel, end);
            const matrix<A> keys = at.keys.rows_at(0, panel_end - panel);
            const matrix<A> values = at.values.rows_at(0, panel_end - panel);
            take_keys(facts, in, head / (facts.heads / facts.kv_heads), run.row_of(sequence) + panel - run.place, keys,
                      values);
            for (integer tile = 0; tile < count; tile += query_tile) {
                const integer rows = std::min(query_tile, count - tile), first = place + tile;
                const std::int32_t* seen_from = starts + row + tile;
                const integer from = std::max(panel, lowest_start(seen_from, rows));
                const integer width = std::min(panel_end, first + rows) - from;
                if (width <= 0) continue;
                const bool is_first = !begun[tile / query_tile];
                begun[tile / query_tile] = true;
                const matrix<A> q = at.queries.rows_at(0, rows);
                copy_rows(rows_of_head(in.q, tile, rows, facts.qk_dim), q, scale);
                const matrix<A> scores{at.scores.data, rows, width, score_stride};
                gemm(side::plain, side::transposed, rows, width, facts.qk_dim, A{1}, q.data, q.stride,
                     keys.row(from - panel), keys.stride, A{0}, scores.data, scores.stride);
                const matrix<A> mixed = at.mixed.rows_at(tile, rows);
                soften_tile(scores, first, from, seen_from, is_first, at.maximum + tile, at.sum + tile, mixed);
                gemm(side::plain, side::plain, rows, facts.v_dim, width, A{1}, scores.data, scores.stride,
                     values.row(from - panel), values.stride, is_first ? A{0} : A{1}, mixed.data, mixed.stride);
            }
        }
    }
    for (integer r = 0; r < count; ++r) {
        const bool sees = begun[r / query_tile] && at.sum[r] != A{0};
        if (!sees) std::fill_n(at.mixed.row(r), facts.v_dim, A{0});
        copy_rows(at.mixed.rows_at(r, 1), rows_of_head(out, r, 1, facts.v_dim), sees ? A{1} / at.sum[r] : A{1});
        logsumexp[row + r] = sees ? at.maximum[r] + std::log(at.sum[r]) : -std::numeric_limits<A>::infinity();
    }
}

}  // namespace detail::attention

/// Causal softmax attention of `sequences` sequences, of which `queries` and `keys` say which places lie in which rows:
/// out[i] = sum over starts[i] <= j <= i of softmax_j(scale q[i] . key[j]) value[j] over the keys given, for each head.
/// starts[query tokens] is, of each query, the place of the first token it sees: that of its document, or 0.
/// out[query tokens, heads * v_dim] of T or its accumulator; logsumexp[heads, query tokens] is what the backward needs;
/// of a query that sees no key, 0 and -inf. With `continues`, both hold what other keys gave, and become what all give
/// together. Dao 2023, "FlashAttention-2". Needs `attention_scratch<T>` bytes a worker. Errors: sizes that don't match;
/// a start outside [0, place].
template <class T, class Out>
void attention_forward(host::queue& queue, const attention_facts& facts, integer sequences,
                       std::span<const place_run> queries, std::span<const place_run> keys,
                       const attention_operands<const T>& in, const std::int32_t* starts, matrix<Out> out,
                       matrix<accumulator_t<T>> logsumexp, bool continues = false) {
    using detail::attention::query_block;
    detail::attention::check_sizes<T>(queue, facts, sequences, queries, keys, in);
    integer blocks = 0;
    for (const place_run& run : queries) {
        blocks += pieces(run.count, query_block);
        for (integer sequence = 0; sequence < sequences; ++sequence)
            for (integer i = 0; i < run.count; ++i)
                if (const integer start = starts[run.row_of(sequence) + i]; start < 0 || start > run.place + i)
                    fail("attention: found document start ", start, " at token ", run.place + i, " of sequence ",
                         sequence, ", expected one in [0, ", run.place + i, "]");
    }
    queue.enqueue(sequences * facts.heads * blocks, [&](integer task, int worker) {
        integer block = blocks - 1 - task % blocks;
        const place_run* run = queries.data();
        for (; block >= pieces(run->count, query_block); ++run) block -= pieces(run->count, query_block);
        const integer head = task / blocks % facts.heads, sequence = task / (blocks * facts.heads);
        const integer first = block * query_block;
        detail::attention::attend_block(facts, in, sequence, run->place + first, run->row_of(sequence) + first,
                                        std::min(query_block, run->count - first), keys, head, starts, out,
                                        logsumexp.row(head), continues, queue.scratch(worker));
    });
}

/// The same of whole sequences of `length` tokens, one after another.
template <class T>
void attention_forward(host::queue& queue, const attention_facts& facts, integer sequences, integer length,
                       const attention_operands<const T>& in, const std::int32_t* starts, matrix<T> out,
                       matrix<accumulator_t<T>> logsumexp) {
    const place_run whole{.count = length, .step = length};
    attention_forward<T, T>(queue, facts, sequences, {&whole, 1}, {&whole, 1}, in, starts, out, logsumexp);
}

}  // namespace fathom::ops
