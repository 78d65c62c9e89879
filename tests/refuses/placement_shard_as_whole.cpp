// A rank's part of a tensor is not the tensor.
#include <fathom/parallel/placement.hpp>

using namespace fathom;

using stream = tensor<float, axis::tokens, axis::hidden>;
float first(stream x);

#ifdef REFUSED
// refused: fathom: a shard is used as the whole tensor. fix: redistribute<> it to replicate<> over the axes of
//     its shard<>.
using given = placed<stream, shard<axis::tokens, mesh_axis::tp>>;
#else
using given = placed<stream, replicate<mesh_axis::tp>>;
#endif

float norm(given x) { return first(x.whole()); }
