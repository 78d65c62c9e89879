// DualPipeV needs enough micro-batches to fill the way down and back.
#include <fathom/parallel/schedule/at.hpp>

using namespace fathom;

#ifdef REFUSED
// refused: fathom: DualPipeV passes each rank twice. fix: pick at least twice as many micro-batches as
//     ranks.
using fact = schedule::at<schedule::dual_pipe_v, 4, 7>;
#else
using fact = schedule::at<schedule::dual_pipe_v, 4, 9>;
#endif
constexpr bool holds = schedule::proven<fact>;
