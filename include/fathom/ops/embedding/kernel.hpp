// The embedding for GPUs, and its gradient without atomics: the first token of a kind adds up all of its kind, in
// order.
#pragma once

#include <bit>
#include <cstdint>
#include <fathom/core/bytes.hpp>
#include <fathom/core/number.hpp>
#include <fathom/device/block/each_pack.hpp>
#include <fathom/device/block/memory.hpp>
#include <fathom/device/block/pack.hpp>
#include <fathom/device/block/qualifier.hpp>
#include <type_traits>

namespace fathom::ops {

/// `embed`: y[M, H] from tokens[1, M] and table[V, H]. Ends the launch at a token outside [0, V).
template <class T> struct embed_kernel {
    static constexpr const char* name = "embed";
    static constexpr int threads = 256;
    static constexpr integer blocks(integer rows) { return rows; }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, T> y,
                                  device::rows<Block, const std::int32_t> tokens,
                                  device::rows<Block, const T> table) const {
        const integer r = block.block_rank(), token = static_cast<std::int32_t>(tokens(0, r));
        if (token < 0 || token >= table.rows) block.trap("a token outside of the vocabulary");
        const auto from = table.row(token);
        const auto to = y.row(r);
        device::each_pack<T>(block, y.width, block.aligned(from, to), [&](integer c, auto count) {
            device::pack<T, count()> numbers;
            block.load(numbers, from + c);
            block.store(to + c, numbers);
        });
    }
};

/// `embed_backward`: row tokens[r] of dtable[V, H] += row r of dy[M, H], in the order of r. A block a token; it returns
/// at once unless its token is the first of its kind. tokens[1, M] as `embed_kernel` has checked them.
template <class From> struct embed_backward_kernel {
    using A = accumulator_t<From>;
    static constexpr const char* name = "embed_backward";
    static constexpr int threads = 256;
    static constexpr integer shared_bytes() { return threads / 32 * sizeof(std::uint32_t); }
    static constexpr integer blocks(integer rows) { return rows; }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, A> dtable,
                                  device::rows<Block, const std::int32_t> tokens,
                                  device::rows<Block, const From> dy) const {
        const auto alike = block.template shared<std::uint32_t>(threads / 32);  // bit i of word w: token 32 w + i
        const auto warp = block.warp();
        const integer mine = block.block_rank();
        const std::int32_t token = static_cast<std::int32_t>(tokens(0, mine));
        const auto find = [&](integer first, integer end) {  // of the tokens [first, first + threads) below end
            const integer r = first + block.thread_rank();
            const std::uint32_t word = warp.ballot(r < end && static_cast<std::int32_t>(tokens(0, r)) == token);
            block.sync();
            if (warp.thread_rank() == 0) alike[warp.meta_group_rank()] = word;
            block.sync();
        };
        for (integer first = 0; first < mine; first += threads) {
            find(first, mine);
            for (int w = 0; w < threads / 32; ++w)
                if (static_cast<std::uint32_t>(alike[w]) != 0) return;
        }
        for (integer first = mine; first < dy.rows; first += threads) {
            find(first, dy.rows);
            for (int w = 0; w < threads / 32; ++w)
                for (std::uint32_t word = static_cast<std::uint32_t>(alike[w]); word != 0; word &= word - 1) {
                    const integer r = first + 32 * w + std::countr_zero(word);
                    for (integer i = block.thread_rank(); i < dy.width; i += block.size())
                        dtable(token, i) += static_cast<A>(dy(r, i));
                }
        }
    }
};

}  // namespace fathom::ops
