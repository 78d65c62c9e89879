// Products for GPUs without tensor cores, in any number format: plainly right, and what faster ones are compared with.
#pragma once

#include <fathom/core/bytes.hpp>
#include <fathom/core/number.hpp>
#include <fathom/device/block/memory.hpp>
#include <fathom/device/block/qualifier.hpp>

namespace fathom::ops {

/// out[m, n] (+)= op(left)[m, k] op(right)[k, n], a block a tile of 16 x 16 and a thread a number, which sums k in
/// order and is rounded once. `product` is x w^T, `product_input` dy w, `product_weight` dy^T x, accumulated.
template <class Out, class Left, class Right> struct product_kernel {
    using A = accumulator_t<Left>;
    static constexpr const char* name = "product";
    static constexpr int side = 16, threads = side * side;
    static constexpr integer shared_bytes() { return 2 * side * (side + 1) * sizeof(A) + 2 * 128; }
    static constexpr integer blocks(integer rows, integer width) { return pieces(rows, side) * pieces(width, side); }

    bool left_transposed = false, right_transposed = false;

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, Out> out, bool accumulate,
                                  device::rows<Block, const Left> left, device::rows<Block, const Right> right) const {
        const auto a = block.template shared<A>(side * (side + 1)), b = block.template shared<A>(side * (side + 1));
        const integer tiles = pieces(out.width, side), depth = left_transposed ? left.rows : left.width;
        const integer row = block.block_rank() / tiles * side, column = block.block_rank() % tiles * side;
        const integer i = block.thread_rank() / side, j = block.thread_rank() % side;
        A sum{};
        if (accumulate && row + i < out.rows && column + j < out.width)
            sum = static_cast<A>(static_cast<Out>(out(row + i, column + j)));
        for (integer first = 0; first < depth; first += side) {
            // Neighbouring threads read neighbouring numbers, whichever way an operand lies.
            const integer m = left_transposed ? j : i, k = left_transposed ? i : j;
            A number{};
            if (row + m < out.rows && first + k < depth)
                number = static_cast<A>(
                    static_cast<Left>(left_transposed ? left(first + k, row + m) : left(row + m, first + k)));
            a[m * (side + 1) + k] = number;
            const integer n = right_transposed ? i : j, l = right_transposed ? j : i;
            number = A{};
            if (column + n < out.width && first + l < depth)
                number = static_cast<A>(
                    static_cast<Right>(right_transposed ? right(column + n, first + l) : right(first + l, column + n)));
            b[n * (side + 1) + l] = number;
            block.sync();
            const integer some = depth - first < side ? depth - first : side;
            for (integer s = 0; s < some; ++s)
                sum += static_cast<A>(a[i * (side + 1) + s]) * static_cast<A>(b[j * (side + 1) + s]);
            block.sync();
        }
        if (row + i < out.rows && column + j < out.width) out(row + i, column + j) = static_cast<Out>(sum);
    }
};

}  // namespace fathom::ops
