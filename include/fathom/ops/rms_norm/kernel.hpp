// RMSNorm for GPUs, forward with the residual stream and backward: a block a row, sums in an order that the width
// gives.
#pragma once

#include <cmath>
#include <fathom/core/bytes.hpp>
#include <fathom/core/number.hpp>
#include <fathom/device/block/each_pack.hpp>
#include <fathom/device/block/pack.hpp>
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
        const auto out = y.row(r);
        const bool joined = !branch.empty();
        const auto more = joined ? branch.row(r) : device::global<Block, const T>{in};
        const bool wide = block.aligned(in, out, more, gain.row(0));
        A squares{};
        device::each_pack<T>(block, width, wide, [&](integer i, auto count) {
            device::pack<T, count()> values{}, added{};
            block.load(values, in + i);
            if (joined) {
                block.load(added, more + i);
                for (int j = 0; j < count(); ++j)
                    values[j] = static_cast<T>(static_cast<A>(values[j]) + static_cast<A>(added[j]));
                block.store(in + i, values);
            }
            for (int j = 0; j < count(); ++j) squares += static_cast<A>(values[j]) * static_cast<A>(values[j]);
        });
        squares = device::reduce(block, scratch, squares, device::plus{});
        const A inverse = A{1} / std::sqrt(squares / static_cast<A>(width) + static_cast<A>(epsilon));
        if (block.thread_rank() == 0) inverse_rms(0, r) = inverse;
        device::each_pack<T>(block, width, wide, [&](integer i, auto count) {
            device::pack<T, count()> values, gains;
            block.load(values, in + i);
            block.load(gains, gain.row(0) + i);
            for (int j = 0; j < count(); ++j) {
                const T normalised = static_cast<T>(static_cast<A>(values[j]) * inverse);
                values[j] = static_cast<T>(static_cast<A>(gains[j]) * static_cast<A>(normalised));
            }
            block.store(out + i, values);
        });
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
        block.sync();  // each_pack may give a number to another thread
        const integer first = block.block_rank() * rows_a_block;
        const integer end = first + rows_a_block < x.rows ? first + rows_a_block : x.rows;
        for (integer r = first; r < end; ++r) {
            const auto in = x.row(r), up = dy.row(r);
            const auto down = dx.row(r);
            const bool wide = block.aligned(in, up, down, gain.row(0));
            const A inverse = static_cast<A>(inverse_rms(0, r));
            A along{};
            device::each_pack<T>(block, width, wide, [&](integer i, auto count) {
                device::pack<T, count()> values, slopes, gains;
                block.load(values, in + i);
                block.load(slopes, up + i);
                block.load(gains, gain.row(0) + i);
                for (int j = 0; j < count(); ++j)
                    along += static_cast<A>(gains[j]) * static_cast<A>(slopes[j]) * static_cast<A>(values[j]);
            });
            // The barriers within also order rows that are shared out in different ways.
            along = device::reduce(block, scratch, along, device::plus{}) * inverse / static_cast<A>(width);
            device::each_pack<T>(block, width, wide, [&](integer i, auto count) {
                device::pack<T, count()> values, slopes, gains, changes{};
                block.load(values, in + i);
                block.load(slopes, up + i);
                block.load(gains, gain.row(0) + i);
                if (accumulate) block.load(changes, down + i);
                for (int j = 0; j < count(); ++j) {
                    const A normalised = static_cast<A>(values[j]) * inverse, slope = static_cast<A>(slopes[j]);
                    sums[i + j] += slope * static_cast<A>(static_cast<T>(normalised));
                    const A change = inverse * (static_cast<A>(gains[j]) * slope - normalised * along);
                    changes[j] = static_cast<T>(accumulate ? static_cast<A>(changes[j]) + change : change);
                }
                block.store(down + i, changes);
            });
        }
        block.sync();
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
