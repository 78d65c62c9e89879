// Nothing is no schedule.
#include <fathom/parallel/schedule/at.hpp>

using namespace fathom;

#ifdef REFUSED
// refused: fathom: a pipeline needs ranks and micro-batches. fix: pick at least one of
//     each.
using fact = schedule::at<schedule::one_f_one_b, 4, 0>;
#else
using fact = schedule::at<schedule::one_f_one_b, 4, 1>;
#endif
constexpr bool holds = schedule::proven<fact>;
