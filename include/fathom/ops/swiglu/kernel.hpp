// SwiGLU and its gradient for GPUs: a block a row.
#pragma once

#include <cmath>
#include <fathom/core/bytes.hpp>
#include <fathom/core/number.hpp>
#include <fathom/device/block/each_pack.hpp>
#include <fathom/device/block/pack.hpp>
#include <fathom/device/block/reduce.hpp>

namespace fathom::ops {

/// `swiglu`: act[rows, width] from gate_up[rows, 2 width], times row_scale[1, rows] unless it is empty.
template <class T> struct swiglu_kernel {
    using A = accumulator_t<T>;
    static constexpr const char* name = "swiglu";
    static constexpr int threads = 256;
    static constexpr integer blocks(integer rows) { return rows; }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, T> act, device::rows<Block, const T> gate_up,
                                  device::rows<Block, const A> row_scale) const {
        const integer r = block.block_rank(), width = act.width;
        const A scale = row_scale.empty() ? A{1} : static_cast<A>(row_scale(0, r));
        const auto in = gate_up.row(r);
        const auto out = act.row(r);
        device::each_pack<T>(block, width, block.aligned(in, in + width, out), [&](integer c, auto count) {
            device::pack<T, count()> gates, ups;
            block.load(gates, in + c);
            block.load(ups, in + (width + c));
            for (int j = 0; j < count(); ++j) {
                const A gate = static_cast<A>(gates[j]);
                ups[j] = static_cast<T>(gate / (A{1} + std::exp(-gate)) * static_cast<A>(ups[j]) * scale);
            }
            block.store(out + c, ups);
        });
    }
};

/// `swiglu_backward`: dgate_up[rows, 2 width], which may be gate_up, and drow_scale[1, rows] unless it is empty, from
/// dact[rows, width].
template <class T> struct swiglu_backward_kernel {
    using A = accumulator_t<T>;
    static constexpr const char* name = "swiglu_backward";
    static constexpr int threads = 256;
    static constexpr integer shared_bytes() { return 32 * sizeof(A); }
    static constexpr integer blocks(integer rows) { return rows; }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, T> dgate_up, device::rows<Block, const T> dact,
                                  device::rows<Block, const T> gate_up, device::rows<Block, const A> row_scale,
                                  device::rows<Block, A> drow_scale) const {
        const auto scratch = block.template shared<A>(32);
        const integer r = block.block_rank(), width = dact.width;
        const A scale = row_scale.empty() ? A{1} : static_cast<A>(row_scale(0, r));
        const auto in = gate_up.row(r);
        const auto up = dact.row(r);
        const auto out = dgate_up.row(r);
        A sum{};
        const bool wide = block.aligned(in, in + width, up, out, out + width);
        device::each_pack<T>(block, width, wide, [&](integer c, auto count) {
            device::pack<T, count()> gates, ups, slopes;
            block.load(gates, in + c);
            block.load(ups, in + (width + c));
            block.load(slopes, up + c);
            for (int j = 0; j < count(); ++j) {
                const A g = static_cast<A>(gates[j]), u = static_cast<A>(ups[j]), d = static_cast<A>(slopes[j]);
                const A s = A{1} / (A{1} + std::exp(-g)), silu = g * s;
                sum += d * silu * u;
                gates[j] = static_cast<T>(u * (d * scale) * (s + silu * (A{1} - s)));
                ups[j] = static_cast<T>(d * scale * silu);
            }
            block.store(out + c, gates);
            block.store(out + (width + c), ups);
        });
        if (drow_scale.empty()) return;
        sum = device::reduce(block, scratch, sum, device::plus{});
        if (block.thread_rank() == 0) drow_scale(0, r) = sum;
    }
};

}  // namespace fathom::ops
