// The norm of all gradients for GPUs, in sums whose order the sizes give, and the clip factor, which stays on the
// device.
#pragma once

#include <cmath>
#include <fathom/core/bytes.hpp>
#include <fathom/device/block/reduce.hpp>
#include <fathom/optim/step_state.hpp>

namespace fathom::optim {

/// First launch: partials[1, blocks(count)] = sums of g^2 over pieces of gradient[1, count], in double.
template <class A> struct squared_norm_kernel {
    static constexpr const char* name = "squared_norm";
    static constexpr int threads = 256;
    static constexpr integer numbers_a_block = 16384;
    static constexpr integer shared_bytes() { return 32 * sizeof(double); }
    static constexpr integer blocks(integer count) { return pieces(count, numbers_a_block); }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, double> partials,
                                  device::rows<Block, const A> gradient) const {
        const auto scratch = block.template shared<double>(32);
        const integer first = block.block_rank() * numbers_a_block;
        const integer end = first + numbers_a_block < gradient.width ? first + numbers_a_block : gradient.width;
        double sum = 0;
        for (integer i = first + block.thread_rank(); i < end; i += block.size()) {
            const auto g = static_cast<double>(static_cast<A>(gradient(0, i)));
            sum += g * g;
        }
        sum = device::reduce(block, scratch, sum, device::plus{});
        if (block.thread_rank() == 0) partials(0, block.block_rank()) = sum;
    }
};

/// *to = the sum of numbers[1, count]: of a parameter's partials. One block. to[1, 1].
struct sum_kernel {
    static constexpr const char* name = "sum";
    static constexpr int threads = 256;
    static constexpr integer shared_bytes() { return 32 * sizeof(double); }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, double> to,
                                  device::rows<Block, const double> numbers) const {
        const auto scratch = block.template shared<double>(32);
        double sum = 0;
        for (integer i = block.thread_rank(); i < numbers.width; i += block.size())
            sum += static_cast<double>(numbers(0, i));
        sum = device::reduce(block, scratch, sum, device::plus{});
        if (block.thread_rank() == 0) to(0, 0) = sum;
    }
};

/// `clip`: writes the norm and the clip factor of state[1, 1] from squares[1, parameters]. One block.
struct clip_kernel {
    static constexpr const char* name = "clip";
    static constexpr int threads = 256;
    static constexpr integer shared_bytes() { return 32 * sizeof(double); }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, step_state> state,
                                  device::rows<Block, const double> squares, double most) const {
        const auto scratch = block.template shared<double>(32);
        double sum = 0;
        for (integer i = block.thread_rank(); i < squares.width; i += block.size())
            sum += static_cast<double>(squares(0, i));
        sum = device::reduce(block, scratch, sum, device::plus{});
        if (block.thread_rank() != 0) return;
        step_state now = static_cast<step_state>(state(0, 0));
        now.gradient_norm = std::sqrt(sum) / now.loss_scale;
        const double wanted = most / (now.gradient_norm + 1e-6);
        now.clip_factor = most > 0 && !(wanted > 1) ? wanted : 1;
        state(0, 0) = now;
    }
};

}  // namespace fathom::optim
