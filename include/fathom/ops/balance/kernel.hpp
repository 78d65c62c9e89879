// The balance loss of experts for GPUs: sums of each sequence, then the loss and its gradient of them.
#pragma once

#include <cstdint>
#include <fathom/core/bytes.hpp>
#include <fathom/device/block/memory.hpp>
#include <fathom/device/block/qualifier.hpp>
#include <fathom/device/block/reduce.hpp>
#include <fathom/ops/router/facts.hpp>

namespace fathom::ops {

/// `balance_sums` over whole sequences, a block each: sums[sequences, 2 * experts] from scores[sequences * length,
/// experts] and ids[sequences * length, top_k], or empty.
template <class A> struct balance_sums_kernel {
    static constexpr const char* name = "balance_sums";
    static constexpr int threads = 256;
    static constexpr integer shared_bytes() { return 32 * sizeof(double); }
    static constexpr integer blocks(integer sequences) { return sequences; }

    router_facts facts;

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, double> sums, device::rows<Block, const A> scores,
                                  device::rows<Block, const std::int32_t> ids) const {
        const auto scratch = block.template shared<double>(32);
        const integer length = scores.rows / sums.rows, first = block.block_rank() * length, experts = facts.experts;
        for (integer e = block.thread_rank(); e < 2 * experts; e += block.size()) sums(block.block_rank(), e) = 0;
        block.sync();
        for (integer t = first; t < first + length; ++t) {
            double all = 0;
            for (integer e = block.thread_rank(); e < experts; e += block.size())
                all += static_cast<double>(static_cast<A>(scores(t, e)));
            all = device::reduce(block, scratch, all, device::plus{});
            for (integer e = block.thread_rank(); e < experts; e += block.size()) {
                const auto mine = static_cast<A>(scores(t, e));
                bool counted = false;
                if (ids.empty()) {
                    integer better = 0;
                    for (integer other = 0; other < experts; ++other) {
                        const auto theirs = static_cast<A>(scores(t, other));
                        better += theirs > mine || (theirs == mine && other < e) ? 1 : 0;
                    }
                    counted = better < facts.top_k;
                } else {
                    for (integer j = 0; j < facts.top_k; ++j)
                        counted = counted || static_cast<std::int32_t>(ids(t, j)) == e;
                }
                // A thread always has the same experts: no barrier is needed.
                const integer s = block.block_rank();
                if (counted) sums(s, e) = static_cast<double>(sums(s, e)) + 1;
                sums(s, experts + e) = static_cast<double>(sums(s, experts + e)) + static_cast<double>(mine) / all;
            }
        }
    }
};

/// `balance_of_sums`: loss[1, 1] += that of all sequences, of `length` tokens each. One block.
struct balance_loss_kernel {
    static constexpr const char* name = "balance_loss";
    static constexpr int threads = 256;
    static constexpr integer shared_bytes() { return 32 * sizeof(double); }

    router_facts facts;

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, double> loss,
                                  device::rows<Block, const double> sums, integer length, double alpha) const {
        const auto scratch = block.template shared<double>(32);
        const auto tokens = static_cast<double>(length);
        const double each = static_cast<double>(facts.experts) / (static_cast<double>(facts.top_k) * tokens);
        double sum = 0;
        for (integer s = 0; s < sums.rows; ++s)
            for (integer e = block.thread_rank(); e < facts.experts; e += block.size())
                sum += alpha * (static_cast<double>(sums(s, e)) * each) *
                       (static_cast<double>(sums(s, facts.experts + e)) / tokens);
        sum = device::reduce(block, scratch, sum, device::plus{});
        if (block.thread_rank() == 0) loss(0, 0) = static_cast<double>(loss(0, 0)) + sum;
    }
};

/// `balance_of_sums_backward` over whole sequences: dscores[tokens, experts] += factor times the gradient, a block a
/// token.
template <class A> struct balance_backward_kernel {
    static constexpr const char* name = "balance_backward";
    static constexpr int threads = 128;
    static constexpr integer shared_bytes() { return 32 * sizeof(double); }
    static constexpr integer blocks(integer tokens) { return tokens; }

    router_facts facts;

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, A> dscores, device::rows<Block, const A> scores,
                                  device::rows<Block, const double> sums, double factor) const {
        const auto scratch = block.template shared<double>(32);
        const integer t = block.block_rank(), length = scores.rows / sums.rows, s = t / length;
        double sum = 0, along = 0;
        for (integer e = block.thread_rank(); e < facts.experts; e += block.size()) {
            const auto score = static_cast<double>(static_cast<A>(scores(t, e)));
            sum += score;
            along += static_cast<double>(sums(s, e)) * score;
        }
        sum = device::reduce(block, scratch, sum, device::plus{});
        along = device::reduce(block, scratch, along, device::plus{}) / sum;
        const auto tokens = static_cast<double>(length);
        const double each = static_cast<double>(facts.experts) / (static_cast<double>(facts.top_k) * tokens);
        const double scale = factor * each / (tokens * sum);
        for (integer e = block.thread_rank(); e < facts.experts; e += block.size())
            dscores(t, e) =
                static_cast<A>(dscores(t, e)) + static_cast<A>(scale * (static_cast<double>(sums(s, e)) - along));
    }
};

}  // namespace fathom::ops
