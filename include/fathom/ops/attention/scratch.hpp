// What one worker needs to attend, carved by the same code that counts it.
#pragma once

#include <algorithm>
#include <fathom/core/error.hpp>
#include <fathom/core/number.hpp>
#include <fathom/device/host/queue.hpp>
#include <fathom/ops/attention/attention_facts.hpp>
#include <fathom/ops/attention/attention_operands.hpp>
#include <fathom/ops/attention/detail/rows.hpp>
#include <fathom/ops/attention/place_run.hpp>
#include <fathom/tensor/arena.hpp>
#include <span>

namespace fathom::ops {
namespace detail::attention {

/// Queries of one task of the forward: several tiles share the keys that it packs.
inline constexpr integer query_block = 4 * query_tile;

template <class A> struct forward_buffers {
    matrix<A> keys, values;  // keys[key_panel, qk_dim], values[key_panel, v_dim]
    matrix<A> queries;       // queries[query_tile, qk_dim], scaled
    matrix<A> scores;        // scores[query_tile, score_stride]
    matrix<A> mixed;         // mixed[query_block, v_dim]: values weighted by exponentials
    A* maximum;              // of the scores of each query of the block so far
    A* sum;                  // of the exponentials

    constexpr forward_buffers(arena& from, const attention_facts& facts)
        : keys(from.take<A>(key_panel, facts.qk_dim)),
          values(from.take<A>(key_panel, facts.v_dim)),
          queries(from.take<A>(query_tile, facts.qk_dim)),
          scores(from.take<A>(query_tile, score_stride)),
          mixed(from.take<A>(query_block, facts.v_dim)),
          maximum(from.take<A>(query_block)),
          sum(from.take<A>(query_block)) {}
};

template <class A> struct backward_buffers {
    matrix<A> keys, values;                    // keys[length, qk_dim], values[length, v_dim]
    matrix<A> key_gradients, value_gradients;  // likewise
    matrix<A> queries, query_gradients;        // [query_tile, qk_dim]
    matrix<A> out, out_gradients;              // [query_tile, v_dim]
    matrix<A> weights, weight_gradients;       // [query_tile, score_stride]

    constexpr backward_buffers(arena& from, const attention_facts& facts, integer length)
        : keys(from.take<A>(length, facts.qk_dim)),
          values(from.take<A>(length, facts.v_dim)),
          key_gradients(from.take<A>(length, facts.qk_dim)),
          value_gradients(from.take<A>(length, facts.v_dim)),
          queries(from.take<A>(query_tile, facts.qk_dim)),
          query_gradients(from.take<A>(query_tile, facts.qk_dim)),
          out(from.take<A>(query_tile, facts.v_dim)),
          out_gradients(from.take<A>(query_tile, facts.v_dim)),
          weights(from.take<A>(query_tile, score_stride)),
          weight_gradients(from.take<A>(query_tile, score_stride)) {}
};

}  // namespace detail::attention

/// Bytes of scratch that a worker needs for attention over T with `length` keys a sequence, forward and backward:
/// linear in `length`.
template <class T> constexpr integer attention_scratch(const attention_facts& facts, integer length) {
    using A = accumulator_t<T>;
    arena forward, backward;
    detail::attention::forward_buffers<A>{forward, facts};
    detail::attention::backward_buffers<A>{backward, facts, length};
    return std::max(forward.used(), backward.used());
}

namespace detail::attention {

template <class T>
void check_sizes(const host::queue& queue, const attention_facts& facts, integer sequences,
                 std::span<const place_run> queries, std::span<const place_run> keys,
                 const attention_operands<const T>& in) {
    check(facts);
    if (const integer length = places_in(queries); in.q.rows != sequences * length)
        fail("attention: found queries of ", in.q.rows, " tokens, expected ", sequences, " sequences of ", length);
    for (const place_run& run : keys)
        if (sequences > 0 && run.row_of(sequences - 1) + run.count > in.k.rows)
            fail("attention: found keys of ", in.k.rows, " tokens, expected ", run.row_of(sequences - 1) + run.count,
                 " at least");
    if (const integer needed = attention_scratch<T>(facts, places_in(keys)); queue.scratch_bytes() < needed)
        fail("attention: found ", queue.scratch_bytes(), " bytes of scratch a worker, expected ", needed);
}

}  // namespace detail::attention
}  // namespace fathom::ops
