// AdamW, the optimizer of every published DeepSeek run, over flat ranges of numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <fathom/core/error.hpp>
#include <fathom/core/number.hpp>
#include <fathom/device/host/queue.hpp>
#include <fathom/optim/decay.hpp>
#include <fathom/optim/step_state.hpp>
#include <type_traits>

namespace fathom::optim {

/// What stays the same over a run. The defaults are those of DeepSeek's papers.
struct adamw_facts {
    double beta1 = 0.9;
    double beta2 = 0.95;
    double epsilon = 1e-8;
    double weight_decay = 0.1;
    decay group = decay::matrices;
};

/// Errors: a value outside its range; names the word, the value and the range.
inline void check(const adamw_facts& facts) {
    const auto below_one = [](const char* word, double value) {
        if (!(value >= 0 && value < 1)) fail("adamw: ", word, " is ", value, ", expected a number in [0, 1)");
    };
    below_one("beta1", facts.beta1);
    below_one("beta2", facts.beta2);
    if (!(facts.epsilon > 0)) fail("adamw: epsilon is ", facts.epsilon, ", expected a number above 0");
    below_one("weight_decay", facts.weight_decay);
}

/// A run of numbers that AdamW moves: all of `count` numbers, at the same places of their ranges.
template <class T, class Master, class Moment = Master> struct adamw_range {
    Master* master = nullptr;  ///< the weights as the optimizer keeps them
    T* weights = nullptr;      ///< the weights as layers read them: master itself, or a copy rounded to T
    Moment* m = nullptr;       ///< mean of gradients
    Moment* v = nullptr;       ///< mean of squared gradients
    integer count = 0;
    bool decayed = true;
};

/// One step of AdamW, as Loshchilov and Hutter (2019) and PyTorch's `AdamW` have it. With the clipped and unscaled
/// gradient g = gradient * clip_factor / loss_scale:
///     m = beta1 m + (1 - beta1) g,    v = beta2 v + (1 - beta2) g^2,    p = p (1 - rate * weight_decay) if decayed,
///     p = p - rate / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + epsilon).
/// Computed in the master's format; `weights` is the new p rounded to T.
template <class T, class Master, class Moment>
void adamw_update(host::queue& queue, const adamw_range<T, Master, Moment>& range,
                  const std::type_identity_t<Master>* gradient, const adamw_facts& facts, const step_state* state) {
    constexpr integer chunk = 8192;
    queue.enqueue(pieces(range.count, chunk), [=](integer task, int) {
        const integer first = task * chunk;
        const integer count = std::min(chunk, range.count - first);
        const auto step = static_cast<double>(state->step);
        const double rate = state->learning_rate;
        const auto correction = static_cast<Master>(1 / std::sqrt(1 - std::pow(facts.beta2, step)));
        const auto stride = static_cast<Master>(rate / (1 - std::pow(facts.beta1, step)));
        const auto kept = static_cast<Master>(range.decayed ? 1 - rate * facts.weight_decay : 1.0);
        const auto beta1 = static_cast<Master>(facts.beta1), rest1 = static_cast<Master>(1 - facts.beta1);
        const auto beta2 = static_cast<Master>(facts.beta2), rest2 = static_cast<Master>(1 - facts.beta2);
        const auto epsilon = static_cast<Master>(facts.epsilon);
        const auto factor = static_cast<Master>(state->clip_factor / state->loss_scale);
        Master* __restrict p = range.master + first;
        Moment* __restrict mean = range.m + first;
        Moment* __restrict square = range.v + first;
        const Master* __restrict slope = gradient + first;
        for (integer i = 0; i < count; ++i) {
            const Master g = slope[i] * factor;
            const Master m = beta1 * static_cast<Master>(mean[i]) + rest1 * g;
            const Master v = beta2 * static_cast<Master>(square[i]) + rest2 * g * g;
            mean[i] = static_cast<Moment>(m);
            square[i] = static_cast<Moment>(v);
            p[i] = p[i] * kept - stride * m / (std::sqrt(v) * correction + epsilon);
        }
        if (static_cast<const void*>(range.weights) != range.master) {
            T* __restrict rounded = range.weights + first;
            for (integer i = 0; i < count; ++i) rounded[i] = static_cast<T>(p[i]);
        }
    });
}

}  // namespace fathom::optim
