// What is cut last lies together.
#include <fathom/comm/redistribute.hpp>

using namespace fathom;

using stream = tensor<float, axis::tokens, axis::hidden>;
using given = placed<stream, shard<axis::tokens, mesh_axis::cp, mesh_axis::tp>>;

#ifdef REFUSED
// refused: fathom: redistribute<> moves a mesh axis that others cut within. fix: begin with the last one of
//     shard<>.
using wanted = placed<stream, shard<axis::tokens, mesh_axis::tp>, replicate<mesh_axis::cp>>;
#else
using wanted = placed<stream, shard<axis::tokens, mesh_axis::cp>, replicate<mesh_axis::tp>>;
#endif

wanted move(const comm::mesh_links& ranks, given x, stream y) { return comm::redistribute<wanted>(ranks, x, y); }
