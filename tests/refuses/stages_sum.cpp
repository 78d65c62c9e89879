// Every layer is in a stage.
#include <fathom/parallel/stages.hpp>

using namespace fathom;

#ifdef REFUSED
// refused: fathom: the stages do not sum to the layers. fix: let the numbers of stages<...> add up to the layers, with
//     one each for the embedding, the head and every module of multi-token prediction.
using split = stage_layers<stages<8, 8, 8, 7>, 30, 4>;
#else
using split = stage_layers<stages<8, 8, 7, 7>, 30, 4>;
#endif

constexpr layer_range last = split::of(3);
