// Products of each head with its own weights: how the up-projections of a latent move from cached tokens to new ones.
#pragma once

#include <fathom/ops/product.hpp>

namespace fathom::ops {

/// For every head h, y_h[rows, n] = x_h[rows, k] w_h^T with w_h[n, k] (`transposed`), or x_h w_h with w_h[k, n]
/// (`plain`). y, x and w are those of head 0; head h begins h * y_step and h * x_step columns and h * w_step rows
/// further. Formats may differ; sums are kept in the accumulator's. Needs `product_scratch` bytes a worker. Errors:
/// shapes that do not fit.
template <class Y, class X, class W>
void heads_product(host::queue& queue, integer heads, matrix<Y> y, integer y_step, matrix<X> x, integer x_step,
                   side w_side, matrix<W> w, integer w_step) {
    const bool transposed = w_side == side::transposed;
    detail::check_product(
        "heads_product",
        y.rows == x.rows && y.width == (transposed ? w.rows : w.width) && x.width == (transposed ? w.width : w.rows),
        y.rows, y.width, x.rows, x.width, w.rows, w.width);
    const detail::tiling tiles{y.rows, y.width};
    queue.enqueue(heads * tiles.count(), [&](integer task, int worker) {
        const integer head = task / tiles.count();
        const auto [row, rows, column, columns] = tiles.at(task % tiles.count());
        const matrix<Y> out{y.data + head * y_step, y.rows, y.width, y.stride};
        const matrix<X> in{x.data + head * x_step, x.rows, x.width, x.stride};
        const matrix<W> weights{w.row(head * w_step), w.rows, w.width, w.stride};
        detail::multiply_tile(
            queue.scratch(worker), out.rows_at(row, rows).columns_at(column, columns), false, side::plain,
            detail::operand_of(in.rows_at(row, rows)), w_side,
            detail::operand_of(transposed ? weights.rows_at(column, columns) : weights.columns_at(column, columns)));
    });
}

}  // namespace fathom::ops
