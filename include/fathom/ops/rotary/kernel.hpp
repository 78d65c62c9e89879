// The rotation of queries and keys for GPUs: a thread a pair.
#pragma once

#include <cstdint>
#include <fathom/core/bytes.hpp>
#include <fathom/core/number.hpp>
#include <fathom/device/block/memory.hpp>
#include <fathom/device/block/qualifier.hpp>

namespace fathom::ops {

/// `rotate`: x[tokens, ...] in place, positions[1, tokens], cosines and sines[positions, dim / 2]. Ends the launch at a
/// position outside the tables.
template <class T> struct rotate_kernel {
    using A = accumulator_t<T>;
    static constexpr const char* name = "rotate";
    static constexpr int threads = 128;
    static constexpr integer blocks(integer tokens) { return tokens; }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, T> x, integer first, integer head_stride,
                                  integer heads, integer dim, bool interleaved,
                                  device::rows<Block, const std::int32_t> positions,
                                  device::rows<Block, const A> cosines, device::rows<Block, const A> sines,
                                  bool inverse) const {
        const integer token = block.block_rank(), half = dim / 2;
        const integer position = static_cast<std::int32_t>(positions(0, token));
        if (position < 0 || position >= cosines.rows) block.trap("a position outside of the tables");
        const integer step = interleaved ? 2 : 1, other = interleaved ? 1 : half;
        const auto row = x.row(token) + first;
        for (integer i = block.thread_rank(); i < heads * half; i += block.size()) {
            const integer pair = i % half;
            const auto at = row + (i / half * head_stride + pair * step);
            const A a = static_cast<A>(at[0]), b = static_cast<A>(at[other]);
            const A cosine = static_cast<A>(cosines(position, pair));
            const A sine = inverse ? -static_cast<A>(sines(position, pair)) : static_cast<A>(sines(position, pair));
            at[0] = static_cast<T>(a * cosine - b * sine);
            at[other] = static_cast<T>(b * cosine + a * sine);
        }
    }
};

}  // namespace fathom::ops
