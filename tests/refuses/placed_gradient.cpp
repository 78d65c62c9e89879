// A gradient that its placement calls a sum over ranks is not yet one.
#include <fathom/optim.hpp>
#include <fathom/parallel/placement.hpp>

using namespace fathom;

using weight = tensor<const float, axis::hidden, axis::hidden>;

void step(host::queue& queue, const optim::adamw_range<float, float>& range, weight gradient,
          const optim::step_state* state) {
    const placed<weight, replicate<mesh_axis::dp>> sum{gradient};
    optim::update(queue, range, sum.whole().data, {}, state);
#ifdef REFUSED
    const placed<weight, sum_over<mesh_axis::dp>> summand{gradient};
    // refused: fathom: a partial gradient must be reduced before the optimizer sees it.
    //     fix: all_reduce or reduce_scatter it over the axes that its type names.
    optim::update(queue, range, summand, {}, state);
#endif
}
