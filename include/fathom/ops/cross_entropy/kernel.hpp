// Cross-entropy for GPUs over the logits of some tokens: a block a row, gradients in place of the logits.
#pragma once

#include <cmath>
#include <cstdint>
#include <fathom/core/bytes.hpp>
#include <fathom/device/block/reduce.hpp>
#include <limits>

namespace fathom::ops {

/// `cross_entropy`, or with gradients == false `cross_entropy_forward`, which leaves the logits as they are.
/// logits[M, V], targets[1, M], losses[1, M], z_losses[1, M] or empty; rows with the target -100 give zeros. Ends the
/// launch at another target outside [0, V).
template <class A> struct cross_entropy_kernel {
    static constexpr const char* name = "cross_entropy";
    static constexpr int threads = 512;
    static constexpr integer shared_bytes() { return 32 * sizeof(A); }
    static constexpr integer blocks(integer rows) { return rows; }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, A> logits,
                                  device::rows<Block, const std::int32_t> targets, double weight, double z_weight,
                                  device::rows<Block, double> losses, device::rows<Block, double> z_losses,
                                  bool gradients) const {
        const integer r = block.block_rank(), width = logits.width;
        const int thread = block.thread_rank();
        const auto scratch = block.template shared<A>(32);
        const auto row = logits.row(r);
        const integer target = static_cast<std::int32_t>(targets(0, r));
        if (target == -100) {
            if (thread == 0) losses(0, r) = 0;
            if (thread == 0 && !z_losses.empty()) z_losses(0, r) = 0;
            if (gradients)
                for (integer i = thread; i < width; i += block.size()) row[i] = A{};
            return;
        }
        if (target < 0 || target >= width) block.trap("a target outside of the vocabulary");
        // The largest logit and the sum of exponentials below it, in one pass: Milakov and Gimelshein, "Online
        // normalizer calculation for softmax", 2018.
        A most = -std::numeric_limits<A>::infinity(), sum{};
        for (integer i = thread; i < width; i += block.size()) {
            const A logit = static_cast<A>(row[i]);
            if (logit > most) {
                sum = sum * std::exp(most - logit) + A{1};
                most = logit;
            } else {
                sum += std::exp(logit - most);
            }
        }
        const A largest = device::reduce(block, scratch, most, device::maximum{});
        sum = device::reduce(block, scratch, sum == A{} ? A{} : sum * std::exp(most - largest), device::plus{});
        const double above = std::log(static_cast<double>(sum));
        const double log_sum = above + static_cast<double>(largest);
        if (thread == 0) {
            losses(0, r) = above - (static_cast<double>(static_cast<A>(row[target])) - static_cast<double>(largest));
            if (!z_losses.empty()) z_losses(0, r) = log_sum * log_sum;
        }
        if (!gradients) return;
        block.sync();  // the target's logit has been read
        const A factor = static_cast<A>((weight + z_weight * 2 * log_sum) / static_cast<double>(sum));
        for (integer i = thread; i < width; i += block.size()) {
            const A slope = std::exp(static_cast<A>(row[i]) - largest) * factor;
            row[i] = i == target ? slope - static_cast<A>(weight) : slope;
        }
    }
};

}  // namespace fathom::ops
