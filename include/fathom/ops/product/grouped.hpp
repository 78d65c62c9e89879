// The products of experts: rows sorted by group, each group with its own weights, one call for all groups.
#pragma once

#include <fathom/ops/product/host.hpp>

namespace fathom::ops {

namespace detail {

/// The tiles of all groups of rows, numbered through: a group's rows are cut as a matrix of its own would be.
struct group_tiling {
    const integer* offsets;
    integer groups, width;

    [[nodiscard]] tiling of(integer group) const { return {offsets[group + 1] - offsets[group], width}; }
    [[nodiscard]] integer count() const {
        integer sum = 0;
        for (integer g = 0; g < groups; ++g) sum += of(g).count();
        return sum;
    }
    struct place {
        integer group, row, rows, column, columns;
    };
    [[nodiscard]] place at(integer task) const {
        integer group = 0;
        for (integer here; task >= (here = of(group).count()); ++group) task -= here;
        const auto [row, rows, column, columns] = of(group).at(task);
        return {group, offsets[group] + row, rows, column, columns};
    }
};

template <class T> operand<std::remove_const_t<T>> gathered(matrix<T> values, const std::int32_t* rows, integer count) {
    return {{values.data, rows == nullptr ? values.rows : count, values.width, values.stride}, rows};
}

}  // namespace detail

/// y[r, N] = x[r, in] w_g[N, in]^T for the rows r in [offsets[g], offsets[g + 1]) of each group g, where w_g are rows
/// [g N, (g + 1) N) of w. With `rows`, row r of x is x.row(rows[r]): tokens reach their experts without a copy in
/// memory. Errors: shapes that do not fit.
template <class Y, class X, class W>
void grouped_product(host::queue& queue, matrix<Y> y, matrix<X> x, matrix<W> w, integer N, const integer* offsets,
                     integer groups, const std::int32_t* rows = nullptr) {
    detail::check_product("grouped_product",
                          y.rows >= offsets[groups] && (rows != nullptr || x.rows >= offsets[groups]) && y.width == N &&
                              w.rows == groups * N && x.width == w.width,
                          y.rows, y.width, x.rows, x.width, w.rows, w.width);
    const detail::group_tiling tiles{offsets, groups, N};
    const auto input = detail::gathered(x, rows, offsets[groups]);
    queue.enqueue(tiles.count(), [&](integer task, int worker) {
        const auto at = tiles.at(task);
        detail::multiply_tile(queue.scratch(worker), y.rows_at(at.row, at.rows).columns_at(at.column, at.columns),
                              false, side::plain, input.rows_at(at.row, at.rows), side::transposed,
                              detail::operand_of(w.rows_at(at.group * N + at.column, at.columns)));
    });
}

/// dx[r, in] (+)= dy[r, N] w_g[N, in]: the gradient of `grouped_product` by its (sorted) input. With `rows`, row r of
/// dy is dy.row(rows[r]). Errors: shapes that do not fit.
template <class X, class Y, class W>
void grouped_product_input(host::queue& queue, matrix<X> dx, matrix<Y> dy, matrix<W> w, integer N,
                           const integer* offsets, integer groups, bool accumulate = false,
                           const std::int32_t* rows = nullptr) {
    detail::check_product("grouped_product_input",
                          dx.rows >= offsets[groups] && (rows != nullptr || dy.rows >= offsets[groups]) &&
                              dy.width == N && w.rows == groups * N && dx.width == w.width,
                          dx.rows, dx.width, dy.rows, dy.width, w.rows, w.width);
    const detail::group_tiling tiles{offsets, groups, dx.width};
    const auto gradient = detail::gathered(dy, rows, offsets[groups]);
    queue.enqueue(tiles.count(), [&](integer task, int worker) {
        const auto at = tiles.at(task);
        detail::multiply_tile(queue.scratch(worker), dx.rows_at(at.row, at.rows).columns_at(at.column, at.columns),
                              accumulate, side::plain, gradient.rows_at(at.row, at.rows), side::plain,
                              detail::operand_of(w.rows_at(at.group * N, N).columns_at(at.column, at.columns)));
    });
}

/// dw_g[N, in] += dy[r, N]^T x[r, in] over the rows r of each group g: the gradient of `grouped_product` by its
/// weights. With `x_rows` (`dy_rows`), row r of x (dy) is x.row(x_rows[r]) (dy.row(dy_rows[r])). Errors: shapes that do
/// not fit.
template <class A, class Y, class X>
void grouped_product_weight(host::queue& queue, matrix<A> dw, matrix<Y> dy, matrix<X> x, integer N,
                            const integer* offsets, integer groups, const std::int32_t* x_rows = nullptr,
                            const std::int32_t* dy_rows = nullptr) {
    detail::check_product("grouped_product_weight",
                          dw.rows == groups * N && dw.width == x.width && dy.width == N &&
                              (x_rows != nullptr || x.rows >= offsets[groups]) &&
                              (dy_rows != nullptr || dy.rows >= offsets[groups]),
                          dw.rows, dw.width, dy.rows, dy.width, x.rows, x.width);
    const detail::tiling tiles{N, dw.width, pieces(16, groups)};  // the groups are shared among workers too
    const auto gradient = detail::gathered(dy, dy_rows, offsets[groups]);
    const auto input = detail::gathered(x, x_rows, offsets[groups]);
    queue.enqueue(groups * tiles.count(), [&](integer task, int worker) {
        const integer group = task / tiles.count(), start = offsets[group], count = offsets[group + 1] - start;
        if (count == 0) return;
        const auto [row, rows, column, columns] = tiles.at(task % tiles.count());
        detail::multiply_tile(queue.scratch(worker), dw.rows_at(group * N + row, rows).columns_at(column, columns),
                              true, side::transposed, gradient.rows_at(start, count).columns_at(row, rows), side::plain,
                              input.rows_at(start, count).columns_at(column, columns));
    });
}

}  // namespace fathom::ops
