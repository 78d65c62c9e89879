// A micro-batch whose weights' gradient nobody computes is lost.
#include <fathom/parallel/schedule/at.hpp>

using namespace fathom;
using schedule::work;

struct mine {
    static constexpr schedule::shape shape{.ranks = 1, .micro_batches = 2};
    static constexpr schedule::step steps[] = {
        {0, work::forward, 0},
        {0, work::backward, 0},
        {0, work::forward, 1},
#ifdef REFUSED
        // refused: fathom: a schedule loses a micro-batch. fix: give each stage its forward and its backward, or both
        //     backward_input and backward_weight.
        {0, work::backward_input, 1},
#else
        {0, work::backward, 1},
#endif
    };
};
constexpr bool holds = schedule::proven<mine>;
