// Ranks that wait for each other in a circle never end.
#include <fathom/parallel/schedule/at.hpp>

using namespace fathom;
using schedule::work;

struct mine {
    static constexpr schedule::shape shape{.ranks = 2, .micro_batches = 2};
    static constexpr schedule::step steps[] = {
#ifdef REFUSED
        // refused: fathom: a schedule's ranks wait for each other for ever. fix: no rank may put a forward after a
        //     backward that, through its neighbours, waits for it.
        {0, work::forward, 0}, {0, work::backward, 0}, {0, work::forward, 1},  {0, work::backward, 1},
#else
        {0, work::forward, 0}, {0, work::forward, 1}, {0, work::backward, 0}, {0, work::backward, 1},
#endif
        {1, work::forward, 0}, {1, work::forward, 1},  {1, work::backward, 0}, {1, work::backward, 1},
    };
};
constexpr bool holds = schedule::proven<mine>;
