// Moving numbers does not change what they mean.
#include <fathom/comm/redistribute.hpp>

using namespace fathom;

using stream = tensor<float, axis::tokens, axis::hidden>;
using given = placed<stream, sum_over<mesh_axis::tp>>;

#ifdef REFUSED
// refused: fathom: redistribute<> got another tensor. fix: let both placements have the same axes.
using wanted = placed<tensor<float, axis::tokens, axis::values>, replicate<mesh_axis::tp>>;
#else
using wanted = placed<stream, replicate<mesh_axis::tp>>;
#endif

wanted move(const comm::mesh_links& ranks, given x, stream y) { return comm::redistribute<wanted>(ranks, x, y); }
