// How long the parts of a step take, in any unit: what turns an order of actions into times.
#pragma once

#include <fathom/parallel/schedule/step.hpp>

namespace fathom::schedule {

/// Time of one micro-batch in one chunk. `backward` is the whole, of which `weight` is for the weights' gradient;
/// `overlapped` is a forward and a whole backward at once.
struct costs {
    double forward = 1;
    double backward = 2;
    double weight = 1;
    double overlapped = 3;

    [[nodiscard]] constexpr double of(work w) const {
        switch (w) {
            case work::forward:
                return forward;
            case work::backward_input:
                return backward - weight;
            case work::backward_weight:
                return weight;
            case work::backward:
                return backward;
            case work::overlapped:
                return overlapped;
            case work::exchange:
                break;
        }
        return 0;
    }
};

}  // namespace fathom::schedule
