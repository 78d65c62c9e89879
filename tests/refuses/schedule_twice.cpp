// Work that is done twice counts twice in the gradient.
#include <fathom/parallel/schedule/at.hpp>

using namespace fathom;
using schedule::work;

struct mine {
    static constexpr schedule::shape shape{.ranks = 1, .micro_batches = 1};
    static constexpr schedule::step steps[] = {
        {0, work::forward, 0},
#ifdef REFUSED
        // refused: fathom: a schedule does the same work twice. fix: each forward, input's and weights' gradient of a
        //     micro-batch once in each stage; backward is both gradients.
        {0, work::backward, 0},
#else
        {0, work::backward_input, 0},
#endif
        {0, work::backward_weight, 0},
    };
};
constexpr bool holds = schedule::proven<mine>;
