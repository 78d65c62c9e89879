// Micro-batches are counted from 0.
#include <fathom/parallel/schedule/at.hpp>

using namespace fathom;
using schedule::work;

struct mine {
    static constexpr schedule::shape shape{.ranks = 1, .micro_batches = 1};
#ifdef REFUSED
    // refused: fathom: a schedule has an action of a rank, chunk or micro-batch that is not there. fix: count each from
    // 0
    //     to below the shape's, and leave exchanges to lower.
    static constexpr schedule::step steps[] = {{0, work::forward, 1}, {0, work::backward, 1}};
#else
    static constexpr schedule::step steps[] = {{0, work::forward, 0}, {0, work::backward, 0}};
#endif
};
constexpr bool holds = schedule::proven<mine>;
