// A stage without layers has nothing to do.
#include <fathom/parallel/stages.hpp>

using namespace fathom;

#ifdef REFUSED
// refused: fathom: a stage has no layers. fix: give every stage of stages<...> at least 1, or use fewer.
using split = stage_layers<stages<15, 0, 8, 7>, 30, 4>;
#else
using split = stage_layers<stages<15, 1, 7, 7>, 30, 4>;
#endif

constexpr layer_range last = split::of(3);
