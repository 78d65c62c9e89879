// The few numbers that change from step to step, in memory that kernels read, so that no step waits for the host.
#pragma once

#include <cstdint>

namespace fathom::optim {

/// What the kernels of a step read. The host writes the upper part before a step, kernels write the lower part.
struct step_state {
    double learning_rate = 0;
    std::int64_t step = 0;  ///< updates made when this step is done: 1 in the first step (AdamW's bias correction)
    double loss_scale = 1;  ///< gradients in memory are this many times too large
    std::uint64_t random_counter = 0;

    double gradient_norm = 0;  ///< of all gradients, unscaled, before clipping
    double clip_factor = 1;    ///< what clipping multiplies every gradient with
};

}  // namespace fathom::optim
