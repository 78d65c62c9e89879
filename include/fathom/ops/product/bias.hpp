// The bias of a product and its gradient.
#pragma once

#include <fathom/core/number.hpp>
#include <fathom/device/host/queue.hpp>

namespace fathom::ops {

/// y[rows, out] += bias[1, out] in every row.
template <class T, class B> void add_bias(host::queue& queue, matrix<T> y, matrix<B> bias) {
    using A = accumulator_t<T>;
    constexpr integer rows_a_task = 64;
    queue.enqueue(pieces(y.rows, rows_a_task), [&](integer task, int) {
        for (integer r = task * rows_a_task; r < y.rows && r < (task + 1) * rows_a_task; ++r) {
            T* __restrict out = y.row(r);
            const B* __restrict add = bias.data;
            for (integer c = 0; c < y.width; ++c)
                out[c] = static_cast<T>(static_cast<A>(out[c]) + static_cast<A>(add[c]));
        }
    });
}

/// dbias[1, out] += the sum of dy[rows, out] over rows: chunks of 64 rows, summed in order.
template <class A, class T> void bias_weight(host::queue& queue, matrix<A> dbias, matrix<T> dy) {
    constexpr integer columns = 64, rows = 64;
    queue.enqueue(pieces(dy.width, columns), [&](integer task, int) {
        const integer first = task * columns, width = dy.width - first < columns ? dy.width - first : columns;
        A total[columns]{};
        for (integer chunk = 0; chunk < dy.rows; chunk += rows) {
            A part[columns]{};
            for (integer r = chunk; r < dy.rows && r < chunk + rows; ++r) {
                const T* __restrict row = dy.row(r) + first;
                for (integer c = 0; c < width; ++c) part[c] += static_cast<A>(row[c]);
            }
            for (integer c = 0; c < columns; ++c) total[c] += part[c];
        }
        for (integer c = 0; c < width; ++c) dbias.data[first + c] += total[c];
    });
}

}  // namespace fathom::ops
