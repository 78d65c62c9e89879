// The terms of a step's loss: what each weighs, and what its sums come to.
#pragma once

#include <array>
#include <fathom/models/config.hpp>
#include <fathom/nn/language_head.hpp>

namespace fathom::models {

/// Weights of the terms of a step's loss. Means are over the tokens or sequences of the whole step, so they are known
/// before its first backward and do not depend on how the step is cut in micro-batches.
struct loss_weights {
    double token = 0;    // 1 / targets of the step that count
    double z = 0;        // coefficient of logsumexp^2, times `token`
    double balance = 0;  // alpha / sequences of the step
    static constexpr integer max_depths = max_prediction_depths;
    std::array<double, max_depths> mtp{};  // lambda / depths / targets of that depth that count
};

/// Sums over the micro-batches of a step: the loss is token * cross_entropy + z * z + sum mtp[k] * mtp[k] + balance
/// (weighted).
struct loss_terms {
    nn::loss_sums main;
    std::array<nn::loss_sums, loss_weights::max_depths> mtp;
    double balance = 0;
};

}  // namespace fathom::models
