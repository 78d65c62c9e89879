// Rows in the widest accesses that they allow: a thread that moves 2 bytes at a time leaves half of a GPU's bandwidth.
#pragma once

#include <fathom/core/bytes.hpp>
#include <fathom/device/block/qualifier.hpp>
#include <type_traits>

namespace fathom::device {

/// Calls visit(i, count) for pieces [i, i + count) of [0, width), shared out over the threads of a block: packs of 16
/// bytes of T if `wide` (the rows are aligned to 16 bytes), and single numbers for the rest. `count` is an
/// std::integral_constant. A thread gets the same pieces whenever width and `wide` are the same.
template <class T, class Block, class Visit>
FATHOM_DEVICE void each_pack(const Block& block, integer width, bool wide, const Visit& visit) {
    constexpr int numbers = 16 / sizeof(T);
    const integer whole = wide ? width / numbers * numbers : 0;
    for (integer i = block.thread_rank() * numbers; i < whole; i += block.size() * numbers)
        visit(i, std::integral_constant<int, numbers>{});
    for (integer i = whole + block.thread_rank(); i < width; i += block.size())
        visit(i, std::integral_constant<int, 1>{});
}

}  // namespace fathom::device
