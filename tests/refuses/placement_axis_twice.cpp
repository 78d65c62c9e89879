// Two parts of one cut are not two cuts.
#include <fathom/parallel/placement.hpp>

using namespace fathom;

using stream = tensor<float, axis::tokens, axis::hidden>;

#ifdef REFUSED
// refused: fathom: a mesh axis is spent twice on one tensor. fix: name each mesh axis in one of shard<>,
//     replicate<> and sum_over<>, once.
using words = placed<stream, shard<axis::tokens, mesh_axis::tp>, shard<axis::hidden, mesh_axis::tp>>;
#else
using words = placed<stream, shard<axis::tokens, mesh_axis::cp>, shard<axis::hidden, mesh_axis::tp>>;
#endif

constexpr words here{stream{}};
