// Attention of new tokens over the cached keys and values of their sequences, all heads of a kv head at once: what one
// step of generation spends its time on when the text is long.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fathom/core/error.hpp>
#include <fathom/core/number.hpp>
#include <fathom/device/host/queue.hpp>
#include <fathom/ops/attention/attention_facts.hpp>
#include <fathom/ops/attention/detail/rows.hpp>
#include <fathom/ops/decode_attention/attention_cache.hpp>
#include <fathom/ops/lane_reduce.hpp>
#include <fathom/ops/product/gemm.hpp>
#include <fathom/tensor/arena.hpp>
#include <limits>
#include <type_traits>

namespace fathom::ops {
namespace detail::decode_attention {

using attention::copy_rows;
using attention::key_panel;
using attention::lanes;
using attention::score_stride;

/// Query heads of one task: a row of a kv head gives at least four tasks where it can.
constexpr integer heads_a_task(const attention_facts& facts) {
    return std::min<integer>(64, pieces(facts.heads / facts.kv_heads, 4));
}

/// What a task needs; keys and values are copied only where they are not in the format of sums.
template <class T, class A> struct buffers {
    matrix<A> queries;  // queries[heads, qk_dim], scaled
    matrix<A> scores;   // scores[heads, score_stride]
    matrix<A> mixed;    // mixed[heads, v_dim]: values weighted by exponentials
    A* maximum;         // of the scores of each head so far
    A* sum;             // of the exponentials
    matrix<A> keys, values;

    constexpr buffers(arena& from, const attention_facts& facts)
        : queries(from.take<A>(heads_a_task(facts), facts.qk_dim)),
          scores(from.take<A>(heads_a_task(facts), score_stride)),
          mixed(from.take<A>(heads_a_task(facts), facts.v_dim)),
          maximum(from.take<A>(heads_a_task(facts))),
          sum(from.take<A>(heads_a_task(facts))) {
        if constexpr (!std::is_same_v<T, A>) {
            keys = from.take<A>(key_panel, facts.qk_dim);
            values = from.take<A>(key_panel, facts.v_dim);
        }
    }
};

/// The cached rows in the format of sums: themselves, or a copy in `panel`.
template <class T, class A> matrix<const A> in_sums(matrix<const T> cached, matrix<A> panel) {
    if constexpr (std::is_same_v<T, A>) {
        return cached;
    } else {
        copy_rows(cached, panel.rows_at(0, cached.rows), A{1});
        return panel.rows_at(0, cached.rows);
    }
}

/// Scores of one panel become e^(score - maximum); `maximum`, `sum` and `mixed` move to the new maximum.
template <class A> void soften(matrix<A> scores, bool is_first, A* maximum, A* sum, matrix<A> mixed) {
    const integer count = round_up(scores.width, lanes);
    for (integer h = 0; h < scores.rows; ++h) {
        A* row = scores.row(h);
        std::fill(row + scores.width, row + count, -std::numeric_limits<A>::infinity());
        const A before = is_first ? -std::numeric_limits<A>::infinity() : maximum[h];
        const A highest = std::max(before, lane_maximum(row, count));
        const A fade = exponential(before - highest), added = attention::exponentials(row, count, highest);
        maximum[h] = highest;
        sum[h] = is_first ? added : sum[h] * fade + added;
        if (is_first || fade == A{1}) continue;
        for (integer c = 0; c < mixed.width; ++c) mixed(h, c) *= fade;
    }
}

}  // namespace detail::decode_attention

/// Bytes of scratch that a worker needs for `decode_attention` over a cache of T: they do not grow with the text.
template <class T> constexpr integer decode_attention_scratch(const attention_facts& facts) {
    arena counted;
    detail::decode_attention::buffers<T, accumulator_t<T>>{counted, facts};
    return counted.used();
}

/// Row r is token positions[r] of sequence sequences[r], its key and value are in the cache: for each head,
/// out[r] = sum over j <= positions[r] of softmax_j(scale q[r] . key[j]) value[j]. An online softmax over panels of
/// keys (Dao 2023, "FlashAttention-2"). q[rows, heads * qk_dim], out[rows, heads * v_dim], each of T or of its sums'
/// format; facts.shared_dim is not read. Needs `decode_attention_scratch<T>` bytes a worker. Errors: sizes that do not
/// fit; a position outside the cache.
template <class T, class Q, class Out>
void decode_attention(host::queue& queue, const attention_facts& facts, matrix<Q> q, const attention_cache<T>& cache,
                      const std::int32_t* sequences, const std::int32_t* positions, matrix<Out> out) {
    using namespace detail::decode_attention;
    using A = accumulator_t<T>;
    check(facts);
    if (q.width != facts.heads * facts.qk_dim || out.width != facts.heads * facts.v_dim || out.rows != q.rows)
        fail("decode_attention: found queries ", q.rows, " x ", q.width, " and a result ", out.rows, " x ", out.width,
             ", expected ", q.rows, " rows of ", facts.heads * facts.qk_dim, " and ", facts.heads * facts.v_dim);
    for (integer r = 0; r < q.rows; ++r)
        if (positions[r] < 0 || positions[r] >= cache.capacity || sequences[r] < 0 ||
            (sequences[r] + 1) * cache.capacity > cache.k.rows)
            fail("decode_attention: found token ", positions[r], " of sequence ", sequences[r], ", expected one of ",
                 cache.capacity, " tokens of ", cache.k.rows / std::max<integer>(cache.capacity, 1), " sequences");
    const integer group = facts.heads / facts.kv_heads, most = heads_a_task(facts), blocks = pieces(group, most);
    queue.enqueue(q.rows * facts.kv_heads * blocks, [&](integer task, int worker) {
        const integer row = task / (facts.kv_heads * blocks), kv_head = task / blocks % facts.kv_heads;
        const integer head = kv_head * group + task % blocks * most;
        const integer heads = std::min(most, (kv_head + 1) * group - head);
        const integer origin = sequences[row] * cache.capacity, count = positions[row] + 1;
        arena memory = queue.scratch(worker);
        const buffers<T, A> at{memory, facts};
        const matrix<A> queries = at.queries.rows_at(0, heads), mixed = at.mixed.rows_at(0, heads);
        copy_rows(matrix<Q>{q.row(row) + head * facts.qk_dim, heads, facts.qk_dim}, queries,
                  static_cast<A>(facts.scale));
        for (integer panel = 0; panel < count; panel += key_panel) {
            const integer width = std::min(key_panel, count - panel);
            const auto rows = [&](matrix<const T> all, integer stride, integer dim, matrix<A> copies) {
                return in_sums<T, A>(all.rows_at(origin + panel, width).columns_at(kv_head * stride, dim), copies);
            };
            const matrix<const A> keys = rows(cache.k, cache.k_head_stride, facts.qk_dim, at.keys);
            const matrix<const A> values = rows(cache.v, cache.v_head_stride, facts.v_dim, at.values);
            const matrix<A> scores{at.scores.data, heads, width, score_stride};
            gemm(side::plain, side::transposed, heads, width, facts.qk_dim, A{1}, queries.data, queries.stride,
                 keys.data, keys.stride, A{0}, scores.data, scores.stride);
            soften(scores, panel == 0, at.maximum, at.sum, mixed);
            gemm(side::plain, side::plain, heads, facts.v_dim, width, A{1}, scores.data, scores.stride, values.data,
                 values.stride, panel == 0 ? A{0} : A{1}, mixed.data, mixed.stride);
        }
        for (integer h = 0; h < heads; ++h)
            copy_rows(mixed.rows_at(h, 1), matrix<Out>{out.row(row) + (head + h) * facts.v_dim, 1, facts.v_dim},
                      A{1} / at.sum[h]);
    });
}

}  // namespace fathom::ops
