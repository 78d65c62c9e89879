// RMSNorm for GPUs, forward with the residual stream and backward: a block a row, sums in an order that the width
// gives.
#pragma once

#include <cmath>
#include <fathom/core/bytes.hpp>
#include <fathom/core/number.hpp>
#include <fathom/device/block/reduce.hpp>

namespace fathom::ops {

/// `rms_norm`, after the residual connection if there is one: with `branch`, x += branch first, as `add` does it.
/// y[M, W], inverse_rms[1, M], x[M, W], branch[M, W] or empty, gain[1, W]; y may be x, but not with `branch`.
template <class T> struct rms_norm_kernel {
    using A = accumulator_t<T>;
    static constexpr const char* name = "rms_norm";
    static constexpr int threads = 256;
    static constexpr integer shared_bytes() { return 32 * sizeof(A); }
    static constexpr integer blocks(integer rows) { return rows; }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, T> y, device::rows<Block, A> inverse_rms,
                                  device::rows<Block, T> x, device::rows<Block, const T> branch,
                                  device::rows<Block, const T> gain, double epsilon) const {
        const integer r = block.block_rank(), width = x.width;
        const auto scratch = block.template shared<A>(32);
        const auto in = x.row(r);
        A squares{};
        for (integer i = block.thread_rank(); i < width; i += block.size()) {
            if (!branch.empty()) in[i] = static_cast<T>(static_cast<A>(in[i]) + static_cast<A>(branch.row(r)[i]));
            const A value = static_cast<A>(in[i]);
            squares += value * value;
        }
        squares = device::reduce(block, scratch, squares, device::plus{});
        const A inverse = A{1} / std::sqrt(squares / static_cast<A>(width) + static_cast<A>(epsilon));
        if (block.thread_rank() == 0) inverse_rms(0, r) = inverse;
        const auto out = y.row(r);
        for (integer i = block.thread_rank(); i < width; i += block.size()) {
            const T normalised = static_cast<T>(static_cast<A>(in[i]) * inverse);
            out[i] = static_cast<T>(static_cast<A>(gain(0, i)) * static_cast<A>(normalised));
        }
    }
};

/// `rms_norm_backward` without the last sum: a block takes `rows_a_block` rows one after the other, and leaves its part
/// of the gain's gradient in a row of partials, for `add_rows_kernel`. dx[M, W], partials[blocks(M), W], dy[M, W],
/// x[M, W], inverse_rms[1, M], gain[1, W]; dx may be dy.
template <class T> struct rms_norm_backward_kernel {
    using A = accumulator_t<T>;
    static constexpr const char* name = "rms_norm_backward";
    static constexpr int threads = 256;
    static constexpr integer rows_a_block = 32;
    static constexpr integer blocks(integer rows) { return pieces(rows, rows_a_block); }

    integer width;
    constexpr integer shared_bytes() const { return 128 * ((32 * sizeof(A) + 127) / 128) + width * sizeof(A); }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, T> dx, bool accumulate,
                                  device::rows<Block, A> partials, device::rows<Block, const T> dy,
                                  device::rows<Block, const T> x, device::rows<Block, const A> inverse_rms,
                                  device::rows<Block, const T> gain) const {
        const auto scratch = block.template shared<A>(32);
        const auto sums =
            block.template shared<A>(width);  // a thread always has the same columns: no barrier is needed
        for (integer i = block.thread_rank(); i < width; i += block.size()) sums[i] = A{};
        const integer first = block.block_rank() * rows_a_block;
        const integer end = first + rows_a_block < x.rows ? first + rows_a_block : x.rows;
        for (integer r = first; r < end; ++r) {
            const auto in = x.row(r);
            const auto up = dy.row(r);
            const auto down = dx.row(r);
            const A inverse = static_cast<A>(inverse_rms(0, r));
            A along{};
            for (integer i = block.thread_rank(); i < width; i += block.size())
                along += static_cast<A>(gain(0, i)) * static_cast<A>(up[i]) * static_cast<A>(in[i]);
            along = device::reduce(block, scratch, along, device::plus{}) * inverse / static_cast<A>(width);
            for (integer i = block.thread_rank(); i < width; i += block.size()) {
                const A normalised = static_cast<A>(in[i]) * inverse;
                const A slope = static_cast<A>(up[i]);
                sums[i] += slope * static_cast<A>(static_cast<T>(normalised));
                const A change = inverse * (static_cast<A>(gain(0, i)) * slope - normalised * along);
                down[i] = static_cast<T>(accumulate ? static_cast<A>(down[i]) + change : change);
            }
        }
        for (integer i = block.thread_rank(); i < width; i += block.size())
            partials(block.block_rank(), i) = static_cast<A>(sums[i]);
    }
};

/// total[1, W] += the rows of parts[P, W], in order: a thread a column.
template <class A> struct add_rows_kernel {
    static constexpr const char* name = "add_rows";
    static constexpr int threads = 128;
    static constexpr integer blocks(integer width) { return pieces(width, threads); }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, A> total,
                                  device::rows<Block, const A> parts) const {
        const integer i = static_cast<integer>(block.block_rank()) * threads + block.thread_rank();
        if (i >= total.width) return;
        A sum = static_cast<A>(total(0, i));
        for (integer r = 0; r < parts.rows; ++r) sum += static_cast<A>(parts(r, i));
        total(0, i) = sum;
    }
};

}  // namespace fathom::ops
