// What is not said of an axis is not known.
#include <fathom/comm/redistribute.hpp>

using namespace fathom;

using stream = tensor<float, axis::tokens, axis::hidden>;
using given = placed<stream, shard<axis::tokens, mesh_axis::cp>, replicate<mesh_axis::tp>>;

#ifdef REFUSED
// refused: fathom: redistribute<> does not know what a mesh axis has of the tensor. fix: name the axis in both
//     placements: in shard<>, replicate<> or sum_over<>.
using wanted = placed<stream, replicate<mesh_axis::tp>>;
#else
using wanted = placed<stream, replicate<mesh_axis::cp, mesh_axis::tp>>;
#endif

wanted move(const comm::mesh_links& ranks, given x, stream y) { return comm::redistribute<wanted>(ranks, x, y); }
