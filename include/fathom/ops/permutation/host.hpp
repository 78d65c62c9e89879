// Tokens sorted by expert and back: a stable counting sort, so that every expert sees its tokens in their order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fathom/core/error.hpp>
#include <fathom/core/number.hpp>
#include <fathom/device/host/queue.hpp>
#include <type_traits>

namespace fathom::ops {

/// Sorts the pairs (token, choice) of ids[tokens, k] by expert, in token order within an expert.
/// offsets[experts + 1]: expert e has the grouped rows [offsets[e], offsets[e + 1]).
/// rows[tokens * k]: the token of a grouped row. slot[tokens, k]: the grouped row of a pair.
/// Errors: an id outside [0, experts); names the token and the id.
inline void group_rows(host::queue& queue, matrix<const std::int32_t> ids, integer experts, integer* offsets,
                       std::int32_t* rows, std::int32_t* slot) {
    queue.enqueue(1, [&](integer, int) {
        for (integer e = 0; e <= experts; ++e) offsets[e] = 0;
        for (integer t = 0; t < ids.rows; ++t)
            for (integer j = 0; j < ids.width; ++j) {
                const integer expert = ids(t, j);
                if (expert < 0 || expert >= experts)
                    fail("group_rows: found expert ", expert, " for token ", t, ", expected 0 to ", experts - 1);
                ++offsets[expert + 1];
            }
        for (integer e = 0; e < experts; ++e) offsets[e + 1] += offsets[e];
        for (integer t = 0; t < ids.rows; ++t)
            for (integer j = 0; j < ids.width; ++j) {
                const integer row = offsets[ids(t, j)]++;
                rows[row] = static_cast<std::int32_t>(t);
                slot[t * ids.width + j] = static_cast<std::int32_t>(row);
            }
        for (integer e = experts; e > 0; --e) offsets[e] = offsets[e - 1];  // each had moved on to the end of its group
        offsets[0] = 0;
    });
}

/// kept[tokens, k] = ids[tokens, k], or `experts` for pairs that are dropped: of those that choose one of `parts` equal
/// parts of the experts, the `most` with the highest scores[tokens, experts] stay (DeepSeek-V2 §2.2.4, where a part is
/// a device); of equal scores, the first. `order`[tokens * k] is written over.
template <class A>
void drop_rows(host::queue& queue, matrix<std::int32_t> kept, matrix<const std::int32_t> ids,
               matrix<const std::type_identity_t<A>> scores, integer experts, integer parts, integer most,
               std::int32_t* order) {
    queue.enqueue(1, [&](integer, int) {
        const auto score = [&](std::int32_t pair) { return scores(pair / ids.width, ids.data[pair]); };
        for (integer part = 0; part < parts; ++part) {
            std::int32_t* end = order;
            for (std::int32_t pair = 0; pair < ids.size(); ++pair) {
                if (ids.data[pair] / (experts / parts) != part) continue;
                kept.data[pair] = ids.data[pair];
                *end++ = pair;
            }
            if (end - order <= most) continue;
            std::nth_element(order, order + most, end, [&](std::int32_t a, std::int32_t b) {
                return score(a) != score(b) ? score(a) > score(b) : a < b;
            });
            for (auto* pair = order + most; pair != end; ++pair) kept.data[*pair] = static_cast<std::int32_t>(experts);
        }
    });
}

/// y[r] = x[rows[r]] for every row of y[grouped, hidden].
template <class T>
void gather_rows(host::queue& queue, matrix<T> y, matrix<const std::type_identity_t<T>> x, const std::int32_t* rows) {
    constexpr integer rows_a_task = 64;
    queue.enqueue(pieces(y.rows, rows_a_task), [&](integer task, int) {
        for (integer r = task * rows_a_task; r < y.rows && r < (task + 1) * rows_a_task; ++r) {
            const T* __restrict source = x.row(rows[r]);
            T* __restrict target = y.row(r);
            for (integer c = 0; c < y.width; ++c) target[c] = source[c];
        }
    });
}

/// y[t] (+)= the sum of x[slot[t, j]] over j in order, for y[tokens, hidden], x[grouped, hidden], slot[tokens, k];
/// rounded once. What experts give back to a token; also the gradient of `gather_rows`.
template <class T>
void combine_rows(host::queue& queue, matrix<T> y, matrix<const std::type_identity_t<T>> x, const std::int32_t* slot,
                  integer k, bool accumulate = false) {
    using A = accumulator_t<T>;
    constexpr integer rows_a_task = 64, lanes = 64;
    queue.enqueue(pieces(y.rows, rows_a_task), [&](integer task, int) {
        for (integer t = task * rows_a_task; t < y.rows && t < (task + 1) * rows_a_task; ++t)
            for (integer first = 0; first < y.width; first += lanes) {
                const integer width = y.width - first < lanes ? y.width - first : lanes;
                A sum[lanes]{};
                T* target = y.row(t) + first;
                if (accumulate)
                    for (integer c = 0; c < width; ++c) sum[c] = static_cast<A>(target[c]);
                for (integer j = 0; j < k; ++j) {
                    const T* source = x.row(slot[t * k + j]) + first;
                    for (integer c = 0; c < width; ++c) sum[c] += static_cast<A>(source[c]);
                }
                for (integer c = 0; c < width; ++c) target[c] = static_cast<T>(sum[c]);
            }
    });
}

/// grouped[slot[i]] = values[i] for every pair i of count: the router's weights as scales of grouped rows.
template <class A>
void scatter_scalars(host::queue& queue, A* grouped, const std::type_identity_t<A>* values, const std::int32_t* slot,
                     integer count) {
    constexpr integer pairs = 4096;
    queue.enqueue(pieces(count, pairs), [&](integer task, int) {
        for (integer i = task * pairs; i < count && i < (task + 1) * pairs; ++i) grouped[slot[i]] = values[i];
    });
}

/// values[i] = grouped[slot[i]]: the way back, for gradients.
template <class A>
void gather_scalars(host::queue& queue, A* values, const std::type_identity_t<A>* grouped, const std::int32_t* slot,
                    integer count) {
    constexpr integer pairs = 4096;
    queue.enqueue(pieces(count, pairs), [&](integer task, int) {
        for (integer i = task * pairs; i < count && i < (task + 1) * pairs; ++i) values[i] = grouped[slot[i]];
    });
}

/// Row r of x becomes row to[r], in place; to[x.rows] names every row once, and `cycles`[x.rows] is written over.
template <class T> void permute_rows(host::queue& queue, matrix<T> x, const std::int32_t* to, std::int32_t* cycles) {
    queue.enqueue(1, [&](integer, int) {
        for (integer r = 0; r < x.rows; ++r) cycles[r] = -1;
        for (integer r = 0; r < x.rows; ++r) {
            if (cycles[r] >= 0) continue;
            cycles[r] = to[r] == r ? 0 : 1;  // 1 where a cycle of several rows begins
            for (integer at = to[r]; at != r; at = to[at]) cycles[at] = 0;
        }
    });
    constexpr integer lanes = 64;
    queue.enqueue(pieces(x.width, lanes), [&](integer task, int) {
        const integer first = task * lanes, width = x.width - first < lanes ? x.width - first : lanes;
        T held[lanes];
        for (integer r = 0; r < x.rows; ++r) {
            if (cycles[r] == 0) continue;
            std::copy_n(x.row(r) + first, width, held);
            integer at = r;
            do {
                at = to[at];
                std::swap_ranges(held, held + width, x.row(at) + first);
            } while (at != r);
        }
    });
}

}  // namespace fathom::ops
