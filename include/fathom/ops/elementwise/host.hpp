// Copies, sums and fills on the host: what joins operations to each other and costs nothing but memory traffic.
#pragma once

#include <algorithm>
#include <fathom/core/number.hpp>
#include <fathom/device/host/queue.hpp>
#include <fathom/tensor/matrix.hpp>
#include <type_traits>

namespace fathom::ops {

namespace detail {

/// Numbers of one task: large against the cost of handing it out, small against a cache.
inline constexpr integer elementwise_chunk = 16384;

/// kernel(row, first column, count) over all pieces of rows; `contiguous` says that all rows may be seen as one.
template <class Kernel>
void for_row_pieces(host::queue& queue, integer rows, integer width, bool contiguous, Kernel&& kernel) {
    if (rows == 0 || width == 0) return;
    if (contiguous) {
        width *= rows;
        rows = 1;
    }
    const integer blocks = pieces(width, elementwise_chunk);
    const integer rows_each = std::max<integer>(1, elementwise_chunk / width);
    queue.enqueue(pieces(rows, rows_each) * blocks, [=](integer task, int) {
        const integer first = task % blocks * elementwise_chunk;
        const integer count = std::min(elementwise_chunk, width - first);
        const integer start = task / blocks * rows_each;
        const integer end = std::min(rows, start + rows_each);
        for (integer r = start; r < end; ++r) kernel(r, first, count);
    });
}

template <class To, class From> To converted(From value) {
    if constexpr (std::is_same_v<To, From>)
        return value;
    else
        return static_cast<To>(static_cast<accumulator_t<To>>(static_cast<accumulator_t<From>>(value)));
}

}  // namespace detail

/// to = from, converted to To's format. to[M, W], from[M, W], not overlapping.
template <class To, class From> void copy(host::queue& queue, matrix<To> to, matrix<From> from) {
    const bool contiguous = to.contiguous() && from.contiguous();
    detail::for_row_pieces(queue, to.rows, to.width, contiguous, [=](integer r, integer first, integer count) {
        const From* __restrict in = from.row(r) + first;
        To* __restrict out = to.row(r) + first;
        for (integer i = 0; i < count; ++i) out[i] = detail::converted<To, std::remove_const_t<From>>(in[i]);
    });
}

/// y += x, added in the accumulator of y's format. y[M, W], x[M, W] of any format, not overlapping.
template <class T, class From> void add(host::queue& queue, matrix<T> y, matrix<From> x) {
    using A = accumulator_t<T>;
    const bool contiguous = y.contiguous() && x.contiguous();
    detail::for_row_pieces(queue, y.rows, y.width, contiguous, [=](integer r, integer first, integer count) {
        const From* __restrict in = x.row(r) + first;
        T* __restrict out = y.row(r) + first;
        for (integer i = 0; i < count; ++i)
            out[i] = static_cast<T>(static_cast<A>(out[i]) + detail::converted<A, std::remove_const_t<From>>(in[i]));
    });
}

/// y = factor * y. y[M, W].
template <class T> void scale(host::queue& queue, matrix<T> y, double factor) {
    using A = accumulator_t<T>;
    const A by = static_cast<A>(factor);
    detail::for_row_pieces(queue, y.rows, y.width, y.contiguous(), [=](integer r, integer first, integer count) {
        T* __restrict out = y.row(r) + first;
        for (integer i = 0; i < count; ++i) out[i] = static_cast<T>(static_cast<A>(out[i]) * by);
    });
}

/// numbers[0, count) = 0.
template <class T> void fill_zero(host::queue& queue, T* numbers, integer count) {
    detail::for_row_pieces(queue, 1, count, true,
                           [=](integer, integer first, integer piece) { std::fill_n(numbers + first, piece, T{}); });
}

/// to (+)= sum over p of from[:, p * step + (0 .. W - 1)], in order of p: the gradient of a part that every head reads.
/// `accumulate` adds to `to`, otherwise it is not read. to[M, W], from[M, at least (parts - 1) * step + W].
template <class T>
void sum_parts(host::queue& queue, matrix<T> to, bool accumulate, std::type_identity_t<matrix<const T>> from,
               integer parts, integer step) {
    using A = accumulator_t<T>;
    detail::for_row_pieces(queue, to.rows, to.width, false, [=](integer r, integer first, integer count) {
        const T* __restrict in = from.row(r) + first;
        T* __restrict out = to.row(r) + first;
        constexpr integer block = 64;
        for (integer start = 0; start < count; start += block) {
            const integer width = std::min(block, count - start);
            A sums[block] = {};
            for (integer p = 0; p < parts; ++p)
                for (integer i = 0; i < width; ++i) sums[i] += static_cast<A>(in[p * step + start + i]);
            for (integer i = 0; i < width; ++i)
                out[start + i] = static_cast<T>(accumulate ? static_cast<A>(out[start + i]) + sums[i] : sums[i]);
        }
    });
}

}  // namespace fathom::ops
