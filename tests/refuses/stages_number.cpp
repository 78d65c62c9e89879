// A pipeline has as many stages as it has.
#include <fathom/parallel/stages.hpp>

using namespace fathom;

#ifdef REFUSED
// refused: fathom: stages<...> names more or fewer stages than the pipeline has. fix: give a number for each stage: pp
//     times the chunks that a rank holds.
using split = stage_layers<stages<10, 10, 10>, 30, 4>;
#else
using split = stage_layers<stages<8, 8, 7, 7>, 30, 4>;
#endif

constexpr layer_range last = split::of(3);
