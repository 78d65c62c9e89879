// The embedding on the host: token ids become rows of a table, and gradients of rows go back to it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fathom/core/error.hpp>
#include <fathom/core/number.hpp>
#include <fathom/device/host/queue.hpp>
#include <fathom/tensor/matrix.hpp>
#include <type_traits>

namespace fathom::ops {

/// Row r of y = row tokens[r] of the table. y[M, H], tokens[M], table[V, H].
/// Errors: a token outside [0, V); names its place and V.
template <class T>
void embed(host::queue& queue, matrix<T> y, const std::int32_t* tokens, std::type_identity_t<matrix<const T>> table) {
    constexpr integer rows = 32;
    queue.enqueue(pieces(y.rows, rows), [=](integer task, int) {
        for (integer r = task * rows; r < std::min(y.rows, (task + 1) * rows); ++r) {
            const integer token = tokens[r];
            if (token < 0 || token >= table.rows)
                fail("embedding: token ", r, " of the batch is ", token, ", expected an id in [0, ", table.rows, ")");
            std::copy_n(table.row(token), y.width, y.row(r));
        }
    });
}

/// The backward of `embed`: row tokens[r] of dtable += row r of dy, in the order of r, whatever the number of workers
/// (a task owns columns of the table). dtable[V, H], tokens[M] as `embed` has checked them, dy[M, H].
template <class From>
void embed_backward(host::queue& queue, matrix<accumulator_t<std::remove_const_t<From>>> dtable,
                    const std::int32_t* tokens, matrix<From> dy) {
    using A = accumulator_t<std::remove_const_t<From>>;
    constexpr integer columns = 64;
    queue.enqueue(pieces(dy.width, columns), [=](integer task, int) {
        const integer first = task * columns;
        const integer count = std::min(columns, dy.width - first);
        for (integer r = 0; r < dy.rows; ++r) {
            const From* __restrict in = dy.row(r) + first;
            A* __restrict out = dtable.row(tokens[r]) + first;
            for (integer i = 0; i < count; ++i) out[i] += static_cast<A>(in[i]);
        }
    });
}

}  // namespace fathom::ops
