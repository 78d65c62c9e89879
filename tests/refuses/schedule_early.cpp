// A backward comes after its forward.
#include <fathom/parallel/schedule/at.hpp>

using namespace fathom;
using schedule::work;

struct mine {
    static constexpr schedule::shape shape{.ranks = 1, .micro_batches = 2};
    static constexpr schedule::step steps[] = {
        {0, work::forward, 0},
#ifdef REFUSED
        // refused: fathom: a schedule does something before what it needs. fix: in each stage forward, then the
        // input's,
        //     then the weights' gradient.
        {0, work::backward, 1},
        {0, work::forward, 1},
#else
        {0, work::forward, 1},
        {0, work::backward, 1},
#endif
        {0, work::backward, 0},
    };
};
constexpr bool holds = schedule::proven<mine>;
