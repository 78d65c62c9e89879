// What attention does to rows of numbers: copying heads to and from scratch, and the softmax of one query over one
// tile.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fathom/core/number.hpp>
#include <fathom/ops/attention/attention_operands.hpp>
#include <fathom/ops/exponential.hpp>
#include <fathom/tensor/matrix.hpp>
#include <limits>

namespace fathom::ops::detail::attention {

/// Queries are worked off in tiles, keys in panels: a task holds query_tile x key_panel scores and never more.
inline constexpr integer query_tile = 64;
inline constexpr integer key_panel = 512;
/// Rows are worked off in pieces of this many columns, so that no vector loop has a scalar end.
inline constexpr integer lanes = 16;
/// The stride of scores: off a power of two, so that the rows of a transposed product don't share cache sets.
inline constexpr integer score_stride = key_panel + lanes;

/// Asks for the cache lines of one row of a head: heads lie a whole row of tokens apart, which no machine foresees.
template <bool Write, class T> void fetch_row(const T* row, integer width) {
    for (integer c = 0; c < width; c += 64 / static_cast<integer>(sizeof(T)))
        __builtin_prefetch(row + c, Write ? 1 : 0, Write ? 3 : 2);
}

/// Copies rows between formats: to = factor * from.
template <class From, class To, class A> void copy_rows(matrix<From> from, matrix<To> to, A factor) {
    constexpr integer ahead = 16;
    for (integer r = 0; r < from.rows; ++r) {
        const From* __restrict source = from.row(r);
        To* __restrict target = to.row(r);
        if (r + ahead < from.rows) {
            fetch_row<false>(from.row(r + ahead), from.width);
            fetch_row<true>(to.row(r + ahead), from.width);
        }
        for (integer c = 0; c < from.width; ++c) target[c] = static_cast<To>(factor * static_cast<A>(source[c]));
    }
}

/// Likewise, but to += factor * from if `accumulate`.
template <class From, class To, class A> void put_rows(matrix<From> from, matrix<To> to, A factor, bool accumulate) {
    if (!accumulate) return copy_rows(from, to, factor);
    for (integer r = 0; r < from.rows; ++r)
        for (integer c = 0; c < from.width; ++c)
            to(r, c) = static_cast<To>(static_cast<A>(to(r, c)) + factor * static_cast<A>(from(r, c)));
}

/// keys[count, qk_dim] and values[count, v_dim] of a kv head, from token `first` on.
template <class T, class A>
void take_keys(const attention_facts& facts, const attention_operands<const T>& in, integer head, integer first,
               matrix<A> keys, matrix<A> values) {
    const integer own = facts.qk_dim - facts.shared_dim;
    copy_rows(in.k.rows_at(first, keys.rows).columns_at(head * in.k_head_stride, own), keys.columns_at(0, own), A{1});
    copy_rows(in.shared.rows_at(first, facts.shared_dim == 0 ? 0 : keys.rows).columns_at(0, facts.shared_dim),
              keys.columns_at(own, facts.shared_dim), A{1});
    copy_rows(in.v.rows_at(first, keys.rows).columns_at(head * in.v_head_stride, facts.v_dim), values, A{1});
}

/// The lowest place that any of `count` queries sees.
inline integer lowest_start(const std::int32_t* starts, integer count) {
    return *std::min_element(starts, starts + count);
}

/// Of a row of scores over the keys from `tile_first` on, the part that one query sees: columns [from, to), and these
/// widened to whole lanes.
struct seen_columns {
    integer from, to, lane_from, lane_to;

    /// Query `query` of a sequence sees the keys [start, query]; the tile has `width` of them.
    seen_columns(integer query, integer start, integer tile_first, integer width)
        : from(std::clamp(start - tile_first, integer{0}, width)),
          to(std::clamp(query + 1 - tile_first, from, width)),
          lane_from(from / lanes * lanes),
          lane_to(to == from ? lane_from : round_up(to, lanes)) {}

    /// Fills what is in the lanes but not seen with -inf, which the exponential makes 0.
    template <class A> void mask_lanes(A* row) const {
        std::fill(row + lane_from, row + std::min(from, lane_to), -std::numeric_limits<A>::infinity());
        std::fill(row + std::min(to, lane_to), row + lane_to, -std::numeric_limits<A>::infinity());
    }
    /// Fills what is outside the lanes with 0.
    template <class A> void clear_rest(A* row, integer width) const {
        std::fill(row, row + std::min(lane_from, width), A{0});
        std::fill(row + std::min(lane_to, width), row + width, A{0});
    }
};

/// x[j] = e^(x[j] - shift); gives the sum. count is a multiple of lanes.
template <class A> A exponentials(A* __restrict x, integer count, A shift) {
    A parts[lanes] = {};
    for (integer j = 0; j < count; j += lanes)
        for (integer l = 0; l < lanes; ++l) {
            const A e = exponential(x[j + l] - shift);
            x[j + l] = e;
            parts[l] += e;
        }
    A sum = 0;
    for (const A part : parts) sum += part;
    return sum;
}

}  // namespace fathom::ops::detail::attention
