// The norm of all gradients, summed so that it does not depend on the number of threads, and what is wrong with it.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <fathom/core/number.hpp>
#include <fathom/device/host/queue.hpp>
#include <fathom/ops/lane_reduce.hpp>
#include <fathom/optim/step_state.hpp>
#include <fathom/tensor/matrix.hpp>
#include <type_traits>

namespace fathom::optim {

/// Numbers of one partial sum of `squared_norm`.
inline constexpr integer squared_norm_chunk = 16384;

/// *result = sum of g^2 over one parameter's gradient, in double: over chunks of `squared_norm_chunk`, then over the
/// chunks in order. gradient[count], partials[pieces(count, squared_norm_chunk)].
template <class A>
void squared_norm(host::queue& queue, const A* gradient, integer count, double* partials, double* result) {
    const integer chunks = pieces(count, squared_norm_chunk);
    queue.enqueue(chunks, [=](integer task, int) {
        const A* part = gradient + task * squared_norm_chunk;
        partials[task] =
            ops::lane_sum<double>(std::min(squared_norm_chunk, count - task * squared_norm_chunk), [part](integer i) {
                const auto g = static_cast<double>(part[i]);
                return g * g;
            });
    });
    queue.enqueue(1, [=](integer, int) {
        double sum = 0;
        for (integer c = 0; c < chunks; ++c) sum += partials[c];
        *result = sum;
    });
}

/// From the squares of all parameters, in global parameter order, writes state's gradient_norm and
/// clip_factor = min(1, most / (norm + 1e-6)), as PyTorch's `clip_grad_norm_`; most = 0 turns clipping off.
/// squares[parameters]. A norm that is not finite is written as it is, for the caller to stop at.
inline void clip(host::queue& queue, const double* squares, integer parameters, double most, step_state* state) {
    queue.enqueue(1, [=](integer, int) {
        double sum = 0;
        for (integer p = 0; p < parameters; ++p) sum += squares[p];
        state->gradient_norm = std::sqrt(sum) / state->loss_scale;
        const double wanted = most / (state->gradient_norm + 1e-6);
        state->clip_factor = most > 0 && !(wanted > 1) ? wanted : 1;
    });
}

namespace detail {

/// Whether a number is finite, from its bits, so that -ffast-math in a user's build cannot wish the answer away.
inline bool is_finite(float x) { return (std::bit_cast<std::uint32_t>(x) & 0x7f800000u) != 0x7f800000u; }
inline bool is_finite(double x) {
    return (std::bit_cast<std::uint64_t>(x) & 0x7ff0000000000000u) != 0x7ff0000000000000u;
}

}  // namespace detail

/// *found = the first r * W + c whose number is NaN or infinite, -1 if there is none. numbers[M, W].
template <class T> void find_non_finite(host::queue& queue, matrix<T> numbers, integer* found) {
    queue.enqueue(1, [=](integer, int) {
        *found = -1;
        for (integer r = 0; r < numbers.rows; ++r)
            for (integer c = 0; c < numbers.width; ++c)
                if (!detail::is_finite(static_cast<accumulator_t<std::remove_const_t<T>>>(numbers(r, c)))) {
                    *found = r * numbers.width + c;
                    return;
                }
    });
}

}  // namespace fathom::optim
