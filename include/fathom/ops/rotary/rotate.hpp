// The rotation of queries and keys in place: what makes a score depend on the distance of two tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fathom/core/error.hpp>
#include <fathom/core/number.hpp>
#include <fathom/device/host/queue.hpp>
#include <fathom/tensor/matrix.hpp>

namespace fathom::ops {
namespace detail {

/// Turns the `pairs` pairs (x[i step], x[i step + other]); `direction` -1 turns back. In whole blocks of fixed size,
/// copied out and in: a loop over x itself would be vectors here and single numbers there, as the address falls, and
/// the two round differently where the machine multiplies and adds in one instruction.
template <integer Step, class T, class A>
void rotate_row(T* x, integer other, integer pairs, const A* cosines, const A* sines, A direction) {
    constexpr integer block = 16;
    for (integer first = 0; first < pairs; first += block) {
        const integer count = std::min(block, pairs - first);
        A a[block] = {}, b[block] = {}, cosine[block] = {}, sine[block] = {}, turned_a[block], turned_b[block];
        T* from = x + Step * first;
        for (integer i = 0; i < count; ++i) {
            a[i] = static_cast<A>(from[Step * i]);
            b[i] = static_cast<A>(from[Step * i + other]);
            cosine[i] = cosines[first + i];
            sine[i] = direction * sines[first + i];
        }
        for (integer i = 0; i < block; ++i) {
            turned_a[i] = a[i] * cosine[i] - b[i] * sine[i];
            turned_b[i] = b[i] * cosine[i] + a[i] * sine[i];
        }
        for (integer i = 0; i < count; ++i) {
            from[Step * i] = static_cast<T>(turned_a[i]);
            from[Step * i + other] = static_cast<T>(turned_b[i]);
        }
    }
}

}  // namespace detail

/// x[tokens, ...] in place: of each token and of `heads` heads, the `dim` numbers from column first + head *
/// head_stride on turn by the angles of positions[token]: (a, b) becomes (a cos - b sin, b cos + a sin), where pairs
/// are (2i, 2i+1) if interleaved, else (i, i + dim/2). `inverse` turns the other way, which is the transpose and so the
/// backward. cosines, sines[positions, dim/2] come from `rope_table`. Su et al. 2021, "RoFormer". Errors: a position
/// outside the tables.
template <class T>
void rotate(host::queue& queue, matrix<T> x, integer first, integer head_stride, integer heads, integer dim,
            bool interleaved, const std::int32_t* positions, matrix<const accumulator_t<T>> cosines,
            matrix<const accumulator_t<T>> sines, bool inverse) {
    using A = accumulator_t<T>;
    constexpr integer tokens_a_task = 64;
    queue.enqueue(pieces(x.rows, tokens_a_task), [&](integer task, int) {
        const integer end = std::min(x.rows, (task + 1) * tokens_a_task);
        for (integer token = task * tokens_a_task; token < end; ++token) {
            const integer position = positions[token];
            if (position < 0 || position >= cosines.rows)
                fail("rotate: found position ", position, " at token ", token, ", expected one in [0, ", cosines.rows,
                     ")");
            for (integer head = 0; head < heads; ++head) {
                T* row = x.row(token) + first + head * head_stride;
                const A direction = inverse ? A{-1} : A{1};
                if (interleaved)
                    detail::rotate_row<2>(row, 1, dim / 2, cosines.row(position), sines.row(position), direction);
                else
                    detail::rotate_row<1>(row, dim / 2, dim / 2, cosines.row(position), sines.row(position), direction);
            }
        }
    });
}

}  // namespace fathom::ops
