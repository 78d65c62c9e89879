// A gradient that is one rank's share of a sum would move the weights of each rank in another way.
#include <fathom/optim.hpp>

struct dp;  // a mesh axis

void step(fathom::host::queue& queue, const fathom::optim::adamw_range<float, float>& range, const float* gradient,
          const fathom::optim::step_state* state) {
    fathom::optim::update(queue, range, gradient, {}, state);
#ifdef REFUSED
    const fathom::partial<const float*, dp> share{gradient};
    // refused: fathom: a partial gradient must be reduced before the optimizer sees it.
    //     fix: all_reduce or reduce_scatter it over the axes that its type names.
    fathom::optim::update(queue, range, share, {}, state);
#endif
}
