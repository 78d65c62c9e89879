// Interleaved 1F1B needs a whole round.
#include <fathom/parallel/schedule/at.hpp>

using namespace fathom;

#ifdef REFUSED
// refused: fathom: interleaved 1F1B goes in rounds of one micro-batch a rank. fix: pick at least as
//     many micro-batches as ranks.
using fact = schedule::at<schedule::interleaved_one_f_one_b<2>, 4, 3>;
#else
using fact = schedule::at<schedule::interleaved_one_f_one_b<2>, 4, 5>;
#endif
constexpr bool holds = schedule::proven<fact>;
