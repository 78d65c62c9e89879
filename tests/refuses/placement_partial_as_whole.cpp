// A rank's share of a sum is not the sum.
#include <fathom/parallel/placement.hpp>

using namespace fathom;

using stream = tensor<float, axis::tokens, axis::hidden>;
float first(stream x);

#ifdef REFUSED
// refused: fathom: a partial sum is used as the sum. fix: redistribute<> it, to replicate<> or shard<> over
//     the axes of its sum_over<>.
using given = placed<stream, sum_over<mesh_axis::tp>>;
#else
using given = placed<stream, replicate<mesh_axis::tp>>;
#endif

float norm(given x) { return first(x.whole()); }
