// AdamW for GPUs: one pass over master weights, moments and gradients.
#pragma once

#include <cmath>
#include <fathom/device/block/memory.hpp>
#include <fathom/device/block/qualifier.hpp>
#include <fathom/optim/adamw.hpp>

namespace fathom::optim {

/// `adamw_update` over ranges[1, count]; weights are empty where master itself is what layers read.
template <class T, class Master, class Moment = Master> struct adamw_kernel {
    static constexpr const char* name = "adamw";
    static constexpr int threads = 256;
    static constexpr integer numbers_a_block = 4096;
    static constexpr integer shared_bytes() { return 3 * sizeof(double); }
    static constexpr integer blocks(integer count) { return pieces(count, numbers_a_block); }

    adamw_facts facts;

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, Master> master, device::rows<Block, T> weights,
                                  device::rows<Block, Moment> mean, device::rows<Block, Moment> square,
                                  device::rows<Block, const Master> gradient, bool decayed,
                                  device::rows<Block, const step_state> state) const {
        const auto held = block.template shared<double>(3);
        const step_state now = static_cast<step_state>(state(0, 0));
        if (block.thread_rank() == 0) {  // powers in double are dear: one thread takes them
            const auto step = static_cast<double>(now.step);
            held[0] = 1 / std::sqrt(1 - std::pow(facts.beta2, step));
            held[1] = now.learning_rate / (1 - std::pow(facts.beta1, step));
            held[2] = now.clip_factor / now.loss_scale;
        }
        block.sync();
        const auto correction = static_cast<Master>(static_cast<double>(held[0]));
        const auto stride = static_cast<Master>(static_cast<double>(held[1]));
        const auto factor = static_cast<Master>(static_cast<double>(held[2]));
        const auto kept = static_cast<Master>(decayed ? 1 - now.learning_rate * facts.weight_decay : 1.0);
        const auto beta1 = static_cast<Master>(facts.beta1), rest1 = static_cast<Master>(1 - facts.beta1);
        const auto beta2 = static_cast<Master>(facts.beta2), rest2 = static_cast<Master>(1 - facts.beta2);
        const auto epsilon = static_cast<Master>(facts.epsilon);
        const integer first = block.block_rank() * numbers_a_block;
        const integer end = first + numbers_a_block < master.width ? first + numbers_a_block : master.width;
        for (integer i = first + block.thread_rank(); i < end; i += block.size()) {
            const Master g = static_cast<Master>(gradient(0, i)) * factor;
            const Master m = beta1 * static_cast<Master>(mean(0, i)) + rest1 * g;
            const Master v = beta2 * static_cast<Master>(square(0, i)) + rest2 * g * g;
            mean(0, i) = static_cast<Moment>(m);
            square(0, i) = static_cast<Moment>(v);
            const Master p =
                static_cast<Master>(master(0, i)) * kept - stride * m / (std::sqrt(v) * correction + epsilon);
            master(0, i) = p;
            if (!weights.empty()) weights(0, i) = static_cast<T>(p);
        }
    }
};

}  // namespace fathom::optim
