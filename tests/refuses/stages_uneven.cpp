// What does not divide has to be said.
#include <fathom/parallel/stages.hpp>

using namespace fathom;

#ifdef REFUSED
// refused: fathom: the layers do not divide evenly over the pipeline's stages. fix: say stages<...>, one number a
// stage,
//     or pick pp<N> so that its stages divide the layers.
using split = stage_layers<stages<>, 30, 4>;
#else
using split = stage_layers<stages<>, 32, 4>;
#endif

constexpr layer_range last = split::of(3);
