// What goes into a step beside its batch, and what comes out of it.
#pragma once

#include <cstdint>
#include <fathom/core/bytes.hpp>
#include <fathom/train/routing_record.hpp>

namespace fathom::train {

/// What of a step may change from step to step.
struct step_settings {
    double learning_rate = 0;
    double clip = 1;                  // global norm; 0: off
    double mtp_lambda = 0.3;          // weight of multi-token prediction
    double balance_alpha = 1e-4;      // sequence-wise balance loss
    double z_loss = 0;                // coefficient of mean(logsumexp^2)
    double bias_update_speed = 1e-3;  // gamma of the router's bias
    routing routes{};                 // whether tokens' experts are recorded, or follow a record
};

/// What a step or an evaluation saw.
struct step_result {
    std::int64_t step = 0;
    double loss = 0;           // the sum of all terms
    double cross_entropy = 0;  // of the main model, mean over targets that count
    double mtp_loss = 0;       // as it enters the loss
    double balance_loss = 0;   // as it enters the loss
    double z_loss = 0;         // as it enters the loss
    double gradient_norm = 0;
    double learning_rate = 0;
    std::int64_t tokens = 0;   // of the batch
    std::int64_t targets = 0;  // that count
};

}  // namespace fathom::train
