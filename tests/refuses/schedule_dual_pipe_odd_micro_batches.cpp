// DualPipe takes micro-batches in pairs.
#include <fathom/parallel/schedule/at.hpp>

using namespace fathom;

#ifdef REFUSED
// refused: fathom: DualPipe is fed from both ends. fix: pick an even number of ranks, and an even number of
//     micro-batches that is at least twice the ranks.
using fact = schedule::at<schedule::dual_pipe, 4, 9>;
#else
using fact = schedule::at<schedule::dual_pipe, 4, 10>;
#endif
constexpr bool holds = schedule::proven<fact>;
