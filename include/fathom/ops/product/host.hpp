// Products of activations with weights stored [out, in], and their two gradients, as tasks of fixed size.
#pragma once

#include <fathom/device/host/queue.hpp>
#include <fathom/ops/product/tile.hpp>
#include <utility>

namespace fathom::ops {

/// The scratch of a worker that products over T ask for at most, grouped or not.
template <class T> constexpr integer product_scratch() {
    constexpr integer side = detail::tile_side, depth = detail::tile_depth;
    constexpr integer upright = side * detail::panel_stride(depth), flat = depth * detail::panel_stride(side);
    constexpr integer numbers = side * side + 2 * (upright > flat ? upright : flat);
    return numbers * static_cast<integer>(sizeof(accumulator_t<T>)) + 3 * arena::alignment;
}

namespace detail {

/// A view to read, whichever view was given.
template <class T> constexpr operand<std::remove_const_t<T>> operand_of(matrix<T> values) { return {values, nullptr}; }

inline void check_product(const char* name, bool fits, integer y_rows, integer y_width, integer x_rows, integer x_width,
                          integer w_rows, integer w_width) {
    if (!fits)
        fail(name, ": found result ", y_rows, " x ", y_width, ", operands ", x_rows, " x ", x_width, " and ", w_rows,
             " x ", w_width, ", expected shapes that fit each other");
}

}  // namespace detail

/// y[rows, out] (+)= x[rows, in] w[out, in]^T. Formats may differ (logits in float from bf16); the sum is kept in the
/// accumulator's format and rounded once. Errors: shapes that do not fit.
template <class Y, class X, class W>
void product(host::queue& queue, matrix<Y> y, matrix<X> x, matrix<W> w, bool accumulate = false) {
    detail::check_product("product", y.rows == x.rows && y.width == w.rows && x.width == w.width, y.rows, y.width,
                          x.rows, x.width, w.rows, w.width);
    const detail::tiling tiles{y.rows, y.width};
    queue.enqueue(tiles.count(), [&](integer task, int worker) {
        const auto [row, rows, column, columns] = tiles.at(task);
        detail::multiply_tile(queue.scratch(worker), y.rows_at(row, rows).columns_at(column, columns), accumulate,
                              side::plain, detail::operand_of(x.rows_at(row, rows)), side::transposed,
                              detail::operand_of(w.rows_at(column, columns)));
    });
}

/// dx[rows, in] (+)= dy[rows, out] w[out, in]: the gradient of `product` by its input. Errors: shapes that do not fit.
template <class X, class Y, class W>
void product_input(host::queue& queue, matrix<X> dx, matrix<Y> dy, matrix<W> w, bool accumulate = false) {
    detail::check_product("product_input", dx.rows == dy.rows && dx.width == w.width && dy.width == w.rows, dx.rows,
                          dx.width, dy.rows, dy.width, w.rows, w.width);
    const detail::tiling tiles{dx.rows, dx.width};
    queue.enqueue(tiles.count(), [&](integer task, int worker) {
        const auto [row, rows, column, columns] = tiles.at(task);
        detail::multiply_tile(queue.scratch(worker), dx.rows_at(row, rows).columns_at(column, columns), accumulate,
                              side::plain, detail::operand_of(dy.rows_at(row, rows)), side::plain,
                              detail::operand_of(w.columns_at(column, columns)));
    });
}

/// dw[out, in] += dy[rows, out]^T x[rows, in]: the gradient of `product` by its weights, summed over rows in order.
/// Errors: shapes that do not fit.
template <class A, class Y, class X> void product_weight(host::queue& queue, matrix<A> dw, matrix<Y> dy, matrix<X> x) {
    detail::check_product("product_weight", dw.rows == dy.width && dw.width == x.width && dy.rows == x.rows, dw.rows,
                          dw.width, dy.rows, dy.width, x.rows, x.width);
    if (x.rows == 0) return;
    const detail::tiling tiles{dw.rows, dw.width};
    queue.enqueue(tiles.count(), [&](integer task, int worker) {
        const auto [row, rows, column, columns] = tiles.at(task);
        detail::multiply_tile(queue.scratch(worker), dw.rows_at(row, rows).columns_at(column, columns), true,
                              side::transposed, detail::operand_of(dy.columns_at(row, rows)), side::plain,
                              detail::operand_of(x.columns_at(column, columns)));
    });
}

}  // namespace fathom::ops
