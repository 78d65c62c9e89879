// Sums and maxima over the threads of a tile and of a block, in an order that depends on their number alone.
#pragma once

#include <fathom/device/block/memory.hpp>
#include <fathom/device/block/qualifier.hpp>

namespace fathom::device {

struct plus {
    template <class A> FATHOM_DEVICE constexpr A operator()(A a, A b) const { return a + b; }
};
struct maximum {
    template <class A> FATHOM_DEVICE constexpr A operator()(A a, A b) const { return a < b ? b : a; }
};

/// The values of all threads of a tile under `join`; every thread gets the same bits. All threads must call.
template <class Tile, class A, class Join> FATHOM_DEVICE A reduce(const Tile& tile, A value, Join join) {
    for (int step = Tile::threads / 2; step > 0; step /= 2) value = join(value, tile.shfl_xor(value, step));
    return value;
}

/// The same over a whole block of at most 1024 threads; scratch[32] is shared memory, free again when all have
/// returned.
template <class Block, class A, class Join>
FATHOM_DEVICE A reduce(Block& block, device::shared<Block, A> scratch, A value, Join join) {
    const auto warp = block.warp();
    value = reduce(warp, value, join);
    if (warp.thread_rank() == 0) scratch[warp.meta_group_rank()] = value;
    block.sync();
    value = static_cast<A>(scratch[0]);
    for (int w = 1; w < warp.meta_group_size(); ++w) value = join(value, static_cast<A>(scratch[w]));
    block.sync();
    return value;
}

}  // namespace fathom::device
