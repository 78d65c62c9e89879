// Products for GPUs without tensor cores, in any number format: plainly right, and what faster ones are compared with.
#pragma once

#include <cstdint>
#include <fathom/core/bytes.hpp>
#include <fathom/core/number.hpp>
#include <fathom/device/block/memory.hpp>
#include <fathom/device/block/qualifier.hpp>

namespace fathom::ops {

namespace detail {

/// A block's tile of a product: 16 x 16 numbers, a thread a number, which it sums in order.
template <class A> struct plain_tile {
    static constexpr int side = 16, stride = side + 1;
    static constexpr integer shared_bytes() { return 2 * side * stride * sizeof(A) + 2 * 128; }
    static constexpr integer count(integer rows, integer width) { return pieces(rows, side) * pieces(width, side); }

    /// sum + the products of left(row, k) and right(column, k) for this thread's row and column of the tile, of k below
    /// depth. Neighbouring threads read neighbouring k, or rows (columns) of an operand that is transposed.
    template <class Block, class Left, class Right>
    static FATHOM_DEVICE A sum(Block& block, A sum, integer depth, bool left_down, const Left& left, bool right_down,
                               const Right& right) {
        const auto a = block.template shared<A>(side * stride), b = block.template shared<A>(side * stride);
        const integer i = block.thread_rank() / side, j = block.thread_rank() % side;
        for (integer first = 0; first < depth; first += side) {
            const integer m = left_down ? j : i, k = left_down ? i : j, n = right_down ? j : i, l = right_down ? i : j;
            a[m * stride + k] = first + k < depth ? left(m, first + k) : A{};
            b[n * stride + l] = first + l < depth ? right(n, first + l) : A{};
            block.sync();
            const integer some = depth - first < side ? depth - first : side;
            for (integer s = 0; s < some; ++s)
                sum += static_cast<A>(a[i * stride + s]) * static_cast<A>(b[j * stride + s]);
            block.sync();
        }
        return sum;
    }
};

}  // namespace detail

/// out[m, n] (+)= op(left)[m, k] op(right)[k, n], rounded once. `product` is x w^T, `product_input` dy w,
/// `product_weight` dy^T x, accumulated.
template <class Out, class Left, class Right> struct product_kernel {
    using A = accumulator_t<Left>;
    using tile = detail::plain_tile<A>;
    static constexpr const char* name = "product";
    static constexpr int threads = tile::side * tile::side;
    static constexpr integer shared_bytes() { return tile::shared_bytes(); }
    static constexpr integer blocks(integer rows, integer width) { return tile::count(rows, width); }

    bool left_transposed = false, right_transposed = false;

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, Out> out, bool accumulate,
                                  device::rows<Block, const Left> left, device::rows<Block, const Right> right) const {
        const integer across = pieces(out.width, tile::side), depth = left_transposed ? left.rows : left.width;
        const integer row = block.block_rank() / across * tile::side, column = block.block_rank() % across * tile::side;
        const integer r = row + block.thread_rank() / tile::side, c = column + block.thread_rank() % tile::side;
        const bool mine = r < out.rows && c < out.width;
        const A before = accumulate && mine ? static_cast<A>(static_cast<Out>(out(r, c))) : A{};
        const A sum = tile::sum(
            block, before, depth, left_transposed,
            [&](integer m, integer k) {
                if (row + m >= out.rows) return A{};
                return static_cast<A>(static_cast<Left>(left_transposed ? left(k, row + m) : left(row + m, k)));
            },
            !right_transposed,
            [&](integer n, integer k) {
                if (column + n >= out.width) return A{};
                return static_cast<A>(
                    static_cast<Right>(right_transposed ? right(column + n, k) : right(k, column + n)));
            });
        if (mine) out(r, c) = static_cast<Out>(sum);
    }
};

/// `grouped_product` (`transposed`) and `grouped_product_input`: out[r, N] (+)= left[r, k] op(right_g)[k, N] for the
/// rows r of [offsets[g], offsets[g + 1]), where right_g are the rows of group g of `right`. With rows[1, out.rows],
/// row r of left is left(rows[r]). offsets[1, groups + 1] is read on the device, so there are blocks for any.
template <class Out, class Left, class Right> struct grouped_product_kernel {
    using A = accumulator_t<Left>;
    using tile = detail::plain_tile<A>;
    static constexpr const char* name = "grouped_product";
    static constexpr int threads = tile::side * tile::side;
    static constexpr integer shared_bytes() { return tile::shared_bytes(); }
    static constexpr integer blocks(integer rows, integer width, integer groups) {
        return (rows / tile::side + groups) * pieces(width, tile::side);
    }

    bool transposed = true;

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, Out> out, bool accumulate,
                                  device::rows<Block, const Left> left, device::rows<Block, const Right> right,
                                  device::rows<Block, const integer> offsets,
                                  device::rows<Block, const std::int32_t> rows) const {
        const integer across = pieces(out.width, tile::side), groups = offsets.width - 1, each = right.rows / groups;
        integer left_over = block.block_rank() / across, group = 0, row = 0, end = 0;
        for (; group < groups; ++group) {
            row = static_cast<integer>(offsets(0, group)), end = static_cast<integer>(offsets(0, group + 1));
            if (left_over < pieces(end - row, tile::side)) break;
            left_over -= pieces(end - row, tile::side);
        }
        if (group == groups) return;
        row += left_over * tile::side;
        const integer column = block.block_rank() % across * tile::side, base = group * each;
        const integer r = row + block.thread_rank() / tile::side, c = column + block.thread_rank() % tile::side;
        const bool mine = r < end && c < out.width;
        const A before = accumulate && mine ? static_cast<A>(static_cast<Out>(out(r, c))) : A{};
        const A sum = tile::sum(
            block, before, left.width, false,
            [&](integer m, integer k) {
                if (row + m >= end) return A{};
                const integer from = rows.empty() ? row + m : integer{static_cast<std::int32_t>(rows(0, row + m))};
                return static_cast<A>(static_cast<Left>(left(from, k)));
            },
            !transposed,
            [&](integer n, integer k) {
                if (column + n >= out.width) return A{};
                return static_cast<A>(
                    static_cast<Right>(transposed ? right(base + column + n, k) : right(base + k, column + n)));
            });
        if (mine) out(r, c) = static_cast<Out>(sum);
    }
};

/// `grouped_product_weight`: dw_g[N, in] += left[r, N]^T right[r, in] over the rows r of each group. With
/// left_rows (right_rows), row r of left (right) is left(left_rows[r]).
template <class Left, class Right> struct grouped_product_weight_kernel {
    using A = accumulator_t<Left>;
    using tile = detail::plain_tile<A>;
    static constexpr const char* name = "grouped_product_weight";
    static constexpr int threads = tile::side * tile::side;
    static constexpr integer shared_bytes() { return tile::shared_bytes(); }
    static constexpr integer blocks(integer rows, integer width, integer groups) {
        return groups * tile::count(rows / groups, width);
    }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, A> dw, device::rows<Block, const Left> left,
                                  device::rows<Block, const Right> right, device::rows<Block, const integer> offsets,
                                  device::rows<Block, const std::int32_t> left_rows,
                                  device::rows<Block, const std::int32_t> right_rows) const {
        const integer each = dw.rows / (offsets.width - 1), across = pieces(dw.width, tile::side);
        const integer tiles = tile::count(each, dw.width), group = block.block_rank() / tiles;
        const integer row = block.block_rank() % tiles / across * tile::side,
                      column = block.block_rank() % across * tile::side;
        const integer first = static_cast<integer>(offsets(0, group));
        const integer depth = static_cast<integer>(offsets(0, group + 1)) - first;
        if (depth == 0) return;
        const integer r = row + block.thread_rank() / tile::side, c = column + block.thread_rank() % tile::side;
        const bool mine = r < each && c < dw.width;
        const auto at = [&](const auto& gathered, integer k) {
            return gathered.empty() ? first + k : integer{static_cast<std::int32_t>(gathered(0, first + k))};
        };
        const A sum = tile::sum(
            block, mine ? static_cast<A>(dw(group * each + r, c)) : A{}, depth, true,
            [&](integer m, integer k) {
                return row + m < each ? static_cast<A>(static_cast<Left>(left(at(left_rows, k), row + m))) : A{};
            },
            true,
            [&](integer n, integer k) {
                return column + n < dw.width ? static_cast<A>(static_cast<Right>(right(at(right_rows, k), column + n)))
                                             : A{};
            });
        if (mine) dw(group * each + r, c) = sum;
    }
};

}  // namespace fathom::ops
