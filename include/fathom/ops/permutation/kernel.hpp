// Tokens sorted by expert and back for GPUs: a stable counting sort in three launches, so that rows come in the host's
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

namespace fathom::ops {

/// First of three launches that are `group_rows`: counts[blocks, experts] = how many pairs of each chunk chose each
/// expert. ids[tokens, k] as one row of tokens * k. Ends the launch at an id outside [0, experts).
struct count_rows_kernel {
    static constexpr const char* name = "count_rows";
    static constexpr int threads = 32;  // a warp, so that a chunk needs no barrier of a block
    static constexpr integer pairs_a_block = 256;
    static constexpr integer blocks(integer pairs) { return pieces(pairs, pairs_a_block); }

    integer experts;
    constexpr integer shared_bytes() const { return experts * sizeof(std::int32_t); }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, std::int32_t> counts,
                                  device::rows<Block, const std::int32_t> ids) const {
        const auto warp = block.warp();
        const auto held = block.template shared<std::int32_t>(experts);
        for (integer e = block.thread_rank(); e < experts; e += threads) held[e] = 0;
        warp.sync();
        const integer first = block.block_rank() * pairs_a_block;
        for (integer i = first + block.thread_rank(); i < first + pairs_a_block && i < ids.width; i += threads) {
            const std::int32_t expert = static_cast<std::int32_t>(ids(0, i));
            if (expert < 0 || expert >= experts) block.trap("an expert that is none");
            block.atomic_add(held + expert, 1);
        }
        warp.sync();
        for (integer e = block.thread_rank(); e < experts; e += threads)
            counts(block.block_rank(), e) = static_cast<std::int32_t>(held[e]);
    }
};

/// Second launch, one block: offsets[1, experts + 1], and counts[chunks, experts] become where each chunk's rows of
/// each expert begin.
struct place_groups_kernel {
    static constexpr const char* name = "place_groups";
    static constexpr int threads = 256;
    static constexpr integer shared_bytes() { return 32 * sizeof(integer); }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, integer> offsets,
                                  device::rows<Block, std::int32_t> counts) const {
        const auto warp = block.warp();
        const auto sums = block.template shared<integer>(32);
        integer begin = 0;  // of the experts of this round
        for (integer first = 0; first < counts.width; first += threads) {
            const integer e = first + block.thread_rank();
            integer mine = 0;
            for (integer c = 0; e < counts.width && c < counts.rows; ++c)
                mine += static_cast<std::int32_t>(counts(c, e));
            integer until = mine;  // of this warp, with this expert
            for (int step = 1; step < 32; step *= 2) {
                const integer other = warp.shfl_up(until, step);
                if (warp.thread_rank() >= step) until += other;
            }
            if (warp.thread_rank() == 31) sums[warp.meta_group_rank()] = until;
            block.sync();
            integer at = begin + until - mine;
            for (int w = 0; w < warp.meta_group_size(); ++w) {
                const integer sum = static_cast<integer>(sums[w]);
                begin += sum;
                if (w < warp.meta_group_rank()) at += sum;
            }
            block.sync();
            if (e >= counts.width) continue;
            offsets(0, e) = at;
            for (integer c = 0; c < counts.rows; ++c) {
                const std::int32_t count = static_cast<std::int32_t>(counts(c, e));
                counts(c, e) = static_cast<std::int32_t>(at);
                at += count;
            }
        }
        if (block.thread_rank() == 0) offsets(0, counts.width) = begin;
    }
};

/// Third launch, with the chunks of the first: rows[1, tokens * k] and slot[1, tokens * k].
struct place_rows_kernel {
    static constexpr const char* name = "place_rows";
    static constexpr int threads = count_rows_kernel::threads;
    static constexpr integer pairs_a_block = count_rows_kernel::pairs_a_block;
    static constexpr integer blocks(integer pairs) { return pieces(pairs, pairs_a_block); }

    integer experts;
    constexpr integer shared_bytes() const { return experts * sizeof(std::int32_t); }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, std::int32_t> rows,
                                  device::rows<Block, std::int32_t> slot,
                                  device::rows<Block, const std::int32_t> begins,
                                  device::rows<Block, const std::int32_t> ids, integer k) const {
        const auto warp = block.warp();
        const int lane = warp.thread_rank();
        const auto next = block.template shared<std::int32_t>(experts);
        for (integer e = lane; e < experts; e += threads)
            next[e] = static_cast<std::int32_t>(begins(block.block_rank(), e));
        warp.sync();
        for (integer round = 0; round < pairs_a_block; round += threads) {
            const integer i = block.block_rank() * pairs_a_block + round + lane;
            const std::int32_t expert = i < ids.width ? static_cast<std::int32_t>(ids(0, i)) : -1;
            std::uint32_t alike = 0;  // lanes with the same expert
            for (int from = 0; from < threads; ++from)
                alike |= static_cast<std::uint32_t>(warp.shfl(expert, from) == expert) << from;
            std::int32_t row = 0;
            if (expert >= 0) {
                row = static_cast<std::int32_t>(next[expert]) + std::popcount(alike & ((1u << lane) - 1));
                rows(0, row) = static_cast<std::int32_t>(i / k);
                slot(0, i) = row;
            }
            warp.sync();
            if (expert >= 0 && (alike >> lane) == 1u) next[expert] = row + 1;  // the last of its kind
            warp.sync();
        }
    }
};

/// `gather_rows`: y[r] = x[rows[r]], a block a row. y[grouped, hidden], rows[1, grouped].
template <class T> struct gather_rows_kernel {
    static constexpr const char* name = "gather_rows";
    static constexpr int threads = 256;
    static constexpr integer blocks(integer rows) { return rows; }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, T> y, device::rows<Block, const T> x,
                                  device::rows<Block, const std::int32_t> rows) const {
        const auto to = y.row(block.block_rank());
        const auto from = x.row(static_cast<std::int32_t>(rows(0, block.block_rank())));
        device::each_pack<T>(block, y.width, block.aligned(from, to), [&](integer c, auto count) {
            device::pack<T, count()> numbers{};
            block.load(numbers, from + c);
            block.store(to + c, numbers);
        });
    }
};

/// `combine_rows`: y[t] (+)= the sum of x[slot[t, j]] over j, a block a token. y[tokens, hidden], slot[tokens, k].
template <class T> struct combine_rows_kernel {
    using A = accumulator_t<T>;
    static constexpr const char* name = "combine_rows";
    static constexpr int threads = 256;
    static constexpr integer blocks(integer tokens) { return tokens; }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, T> y, device::rows<Block, const T> x,
                                  device::rows<Block, const std::int32_t> slot, bool accumulate) const {
        const integer t = block.block_rank();
        const auto to = y.row(t);
        bool wide = block.aligned(to);
        for (integer j = 0; j < slot.width; ++j)
            wide = wide && block.aligned(x.row(static_cast<std::int32_t>(slot(t, j))));
        device::each_pack<T>(block, y.width, wide, [&](integer c, auto count) {
            device::pack<T, count()> numbers{};
            A sums[count()] = {};
            if (accumulate) block.load(numbers, to + c);
            for (int i = 0; accumulate && i < count(); ++i) sums[i] = static_cast<A>(numbers[i]);
            for (integer j = 0; j < slot.width; ++j) {
                block.load(numbers, x.row(static_cast<std::int32_t>(slot(t, j))) + c);
                for (int i = 0; i < count(); ++i) sums[i] += static_cast<A>(numbers[i]);
            }
            for (int i = 0; i < count(); ++i) numbers[i] = static_cast<T>(sums[i]);
            block.store(to + c, numbers);
        });
    }
};

/// `scatter_scalars` and, with back == true, `gather_scalars`: a thread a pair. grouped[1, tokens * k],
/// values[1, tokens * k], slot[1, tokens * k].
template <class A> struct move_scalars_kernel {
    static constexpr const char* name = "move_scalars";
    static constexpr int threads = 256;
    static constexpr integer blocks(integer pairs) { return pieces(pairs, threads); }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, A> grouped, device::rows<Block, A> values,
                                  device::rows<Block, const std::int32_t> slot, bool back) const {
        const integer i = static_cast<integer>(block.block_rank()) * threads + block.thread_rank();
        if (i >= slot.width) return;
        const integer row = static_cast<std::int32_t>(slot(0, i));
        if (back)
            values(0, i) = static_cast<A>(grouped(0, row));
        else
            grouped(0, row) = static_cast<A>(values(0, i));
    }
};

}  // namespace fathom::ops
