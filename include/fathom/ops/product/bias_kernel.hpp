// The bias of a product and its gradient for GPUs, in the host's order of sums.
#pragma once

#include <fathom/ops/elementwise/kernel.hpp>

namespace fathom::ops {

/// `add_bias`: y[rows, out] += bias[1, out] in every row.
template <class T, class B> struct add_bias_kernel {
    using A = accumulator_t<T>;
    static constexpr const char* name = "add_bias";
    static constexpr int threads = 256;
    static constexpr integer blocks(integer rows, integer width) { return detail::row_piece_blocks(rows, width); }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, T> y, device::rows<Block, const B> bias) const {
        detail::each_of_piece(block, y.width, [&](integer r, integer c) {
            const A more = static_cast<A>(static_cast<B>(bias(0, c)));
            y(r, c) = static_cast<T>(static_cast<A>(static_cast<T>(y(r, c))) + more);
        });
    }
};

/// `bias_weight`: dbias[1, out] += the sum of dy[rows, out] over rows, in chunks of 64; a thread a column.
template <class A, class T> struct bias_weight_kernel {
    static constexpr const char* name = "bias_weight";
    static constexpr int threads = 128;
    static constexpr integer blocks(integer width) { return pieces(width, threads); }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, A> dbias, device::rows<Block, const T> dy) const {
        const integer c = static_cast<integer>(block.block_rank()) * threads + block.thread_rank();
        if (c >= dy.width) return;
        constexpr integer rows = 64;
        A total{};
        for (integer chunk = 0; chunk < dy.rows; chunk += rows) {
            A part{};
            for (integer r = chunk; r < dy.rows && r < chunk + rows; ++r)
                part += static_cast<A>(static_cast<T>(dy(r, c)));
            total += part;
        }
        dbias(0, c) = static_cast<A>(dbias(0, c)) + total;
    }
};

}  // namespace fathom::ops
