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

/// Row r of y = row tokens[r] of the table. y[M, H], tokens[M], table[V, H]. Where ranks split the table, this one has
/// its rows from `first` on, of `of_rows`, and gives zeros for the tokens of others.
/// Errors: a token outside [0, V); names its place and V.
template <class T>
void embed(host::queue& queue, matrix<T> y, const std::int32_t* tokens, std::type_identity_t<matrix<const T>> table,
           integer first = 0, integer of_rows = 0) {
    constexpr integer rows = 32;
    const integer vocabulary = of_rows != 0 ? of_rows : table.rows;
    queue.enqueue(pieces(y.rows, rows), [=](integer task, int) {
        for (integer r = task * rows; r < std::min(y.rows, (task + 1) * rows); ++r) {
            const integer token = tokens[r];
            if (token < 0 || token >= vocabulary)
                fail("embedding: token ", r, " of the batch is ", token, ", expected an id in [0, ", vocabulary, ")");
            if (token < first || token >= first + table.rows)
                std::fill_n(y.row(r), y.width, T{});
            else
                std::copy_n(table.row(token - first), y.width, y.row(r));
        }
    });
}

/// The backward of `embed`: row tokens[r] of dtable += row r of dy, in the order of r, whatever the number of workers
/// (a task owns columns of the table). dtable[V, H], tokens[M] as `embed` has checked them, dy[M, H]. Of a table that
/// ranks split, dtable has the rows from `start` on; the tokens of others add nothing.
template <class From>
void embed_backward(host::queue& queue, matrix<accumulator_t<std::remove_const_t<From>>> dtable,
                    const std::int32_t* tokens, matrix<From> dy, integer start = 0) {
    using A = accumulator_t<std::remove_const_t<From>>;
    constexpr integer columns = 64;
    queue.enqueue(pieces(dy.width, columns), [=](integer task, int) {
        const integer first = task * columns;
        const integer count = std::min(columns, dy.width - first);
        for (integer r = 0; r < dy.rows; ++r) {
            const From* __restrict in = dy.row(r) + first;
            const integer row = tokens[r] - start;
            if (row < 0 || row >= dtable.rows) continue;
            A* __restrict out = dtable.row(row) + first;
            for (integer i = 0; i < count; ++i) out[i] += static_cast<A>(in[i]);
        }
    });
}

}  // namespace fathom::ops
