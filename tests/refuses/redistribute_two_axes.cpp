// One collective talks along one axis.
#include <fathom/comm/redistribute.hpp>

using namespace fathom;

using stream = tensor<float, axis::tokens, axis::hidden>;
using given = placed<stream, shard<axis::tokens, mesh_axis::cp, mesh_axis::tp>>;

#ifdef REFUSED
// refused: fathom: redistribute<> moves a tensor along one mesh axis at a time. fix: write one for each axis
//     whose placement changes.
using wanted = placed<stream, replicate<mesh_axis::cp, mesh_axis::tp>>;
#else
using wanted = placed<stream, shard<axis::tokens, mesh_axis::cp>, replicate<mesh_axis::tp>>;
#endif

wanted move(const comm::mesh_links& ranks, given x, stream y) { return comm::redistribute<wanted>(ranks, x, y); }
