// The typed door of the optimizer: it knows a gradient that is not yet summed over the ranks, and does not take it.
#pragma once

#include <fathom/optim/adamw.hpp>
#include <fathom/tensor/partial.hpp>

namespace fathom::optim {

/// One step of the optimizer that `facts` names on one run of weights. Gradient: a pointer to range.count numbers in
/// the master's format; a `partial<...>` of it is refused.
template <class T, class Master, class Moment, class Gradient>
void update(host::queue& queue, const adamw_range<T, Master, Moment>& range, Gradient gradient,
            const adamw_facts& facts, const step_state* state) {
    if constexpr (rule::gradient_is_reduced<Gradient>::holds && !is_partial<Gradient>)
        adamw_update(queue, range, gradient, facts, state);
}

}  // namespace fathom::optim
