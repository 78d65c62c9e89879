// One task of a product: a tile of the result, over the whole sum, from operands of any format and order of rows.
#pragma once

#include <cstdint>
#include <fathom/core/number.hpp>
#include <fathom/ops/product/gemm.hpp>
#include <fathom/tensor/arena.hpp>
#include <type_traits>

namespace fathom::ops::detail {

/// Most rows and columns of a tile, and how much of the sum is expanded at once where operands are expanded.
inline constexpr integer tile_side = 256;
inline constexpr integer tile_depth = 256;
/// Tiles smaller than this take longer to prepare than they save.
inline constexpr integer least_side = 128;
/// An odd number of cache lines: with strides that are powers of two, the rows of a panel fall on the same lines.
constexpr integer panel_stride(integer width) { return round_up(width, 16) | 16; }

/// A matrix whose row r is row rows[r] of `values`, or row r itself when `rows` is null.
template <class T> struct operand {
    matrix<const T> values;
    const std::int32_t* rows = nullptr;

    [[nodiscard]] operand rows_at(integer first, integer count) const {
        if (rows == nullptr) return {values.rows_at(first, count), nullptr};
        return {{values.data, count, values.width, values.stride}, rows + first};
    }
    [[nodiscard]] operand columns_at(integer first, integer count) const {
        return {values.columns_at(first, count), rows};
    }
};

/// The operand in the format of the sum: itself where it can be used as it lies, else a copy in `scratch`.
template <class A, class T> matrix<const A> panel_of(arena& scratch, const operand<T>& from, bool copy) {
    if constexpr (std::is_same_v<A, T>)
        if (!copy && from.rows == nullptr) return from.values;
    const integer width = from.values.width, stride = panel_stride(width);
    const matrix<A> panel{scratch.take<A>(from.values.rows * stride), from.values.rows, width, stride};
    const auto row = [&](integer r) { return from.values.row(from.rows == nullptr ? r : from.rows[r]); };
    constexpr integer ahead = 4, line = 64 / static_cast<integer>(sizeof(T));
    for (integer r = 0; r < panel.rows; ++r) {
        if (r + ahead < panel.rows)  // where a next row lies, no machine foresees
            for (integer c = 0; c < width; c += line) __builtin_prefetch(row(r + ahead) + c);
        const T* __restrict source = row(r);
        A* __restrict target = panel.row(r);
        for (integer c = 0; c < width; ++c) target[c] = static_cast<A>(source[c]);
    }
    return panel;
}

/// out[m, n] (+)= op(left)[m, k] op(right)[k, n], k in fixed pieces in order.
template <class Out, class Left, class Right>
void multiply_tile(arena scratch, matrix<Out> out, bool accumulate, side left_side, operand<Left> left, side right_side,
                   operand<Right> right) {
    using A = accumulator_t<Left>;
    static_assert(std::is_same_v<A, accumulator_t<Right>>, "both operands of a product are summed in one format");
    const bool left_plain = left_side == side::plain, right_plain = right_side == side::plain;
    const integer k = left_plain ? left.values.width : left.values.rows;
    // Where the sum runs down the rows of an operand and they lie a power of two apart, oneDNN can take twice as long
    // as copying to panels and multiplying those does; elsewhere the copies are lost time.
    const bool copy_left = !left_plain && left.values.stride % 512 == 0;
    const bool copy_right = right_plain && right.values.stride % 512 == 0;
    const bool as_they_lie = std::is_same_v<A, Left> && std::is_same_v<A, Right> && left.rows == nullptr &&
                             right.rows == nullptr && !copy_left && !copy_right;
    const integer depth = as_they_lie && k > 0 ? k : tile_depth;

    matrix<A> sum;
    if constexpr (std::is_same_v<Out, A>) {
        sum = out;
    } else {
        sum = scratch.take<A>(out.rows, out.width);
        if (accumulate)
            for (integer r = 0; r < out.rows; ++r)
                for (integer c = 0; c < out.width; ++c) sum(r, c) = static_cast<A>(out(r, c));
    }
    const integer start = scratch.used();
    for (integer first = 0; first == 0 || first < k; first += depth) {
        const integer some = k - first < depth ? k - first : depth;
        const auto a =
            panel_of<A>(scratch, left_plain ? left.columns_at(first, some) : left.rows_at(first, some), copy_left);
        const auto b =
            panel_of<A>(scratch, right_plain ? right.rows_at(first, some) : right.columns_at(first, some), copy_right);
        gemm(left_side, right_side, out.rows, out.width, some, A{1}, a.data, a.stride, b.data, b.stride,
             accumulate || first > 0 ? A{1} : A{0}, sum.data, sum.stride);
        scratch.rewind(start);
    }
    if constexpr (!std::is_same_v<Out, A>)
        for (integer r = 0; r < out.rows; ++r) {
            const A* __restrict source = sum.row(r);
            Out* __restrict target = out.row(r);
            for (integer c = 0; c < out.width; ++c) target[c] = static_cast<Out>(source[c]);
        }
}

/// How an extent is cut in tiles of nearly the same size, a multiple of 16.
struct cut {
    integer extent = 0;
    integer size = 0;

    constexpr cut(integer whole, integer most) : extent(whole) {
        const integer count = pieces(whole, most);
        size = count == 0 ? 0 : round_up(pieces(whole, count), 16);
    }
    [[nodiscard]] constexpr integer count() const { return size == 0 ? 0 : pieces(extent, size); }
    [[nodiscard]] constexpr integer first(integer piece) const { return piece * size; }
    [[nodiscard]] constexpr integer length(integer piece) const {
        return extent - first(piece) < size ? extent - first(piece) : size;
    }
};

/// The tiles of a result: smaller ones where there would be fewer than `wanted`, too few to share among workers.
/// Depends on shapes alone.
struct tiling {
    cut rows, columns;

    constexpr tiling(integer row_count, integer column_count, integer wanted = 4) : rows(0, 1), columns(0, 1) {
        integer tall = tile_side, wide = tile_side;
        while (pieces(row_count, tall) * pieces(column_count, wide) < wanted &&
               (tall > least_side || wide > least_side)) {
            const bool taller = (row_count < tall ? row_count : tall) >= (column_count < wide ? column_count : wide);
            (wide == least_side || (tall > least_side && taller) ? tall : wide) /= 2;
        }
        rows = {row_count, tall};
        columns = {column_count, wide};
    }
    [[nodiscard]] constexpr integer count() const { return rows.count() * columns.count(); }
    struct place {
        integer row, rows, column, columns;
    };
    [[nodiscard]] constexpr place at(integer tile) const {
        const integer r = tile / columns.count(), c = tile % columns.count();
        return {rows.first(r), rows.length(r), columns.first(c), columns.length(c)};
    }
};

}  // namespace fathom::ops::detail
