// What is cut over ranks is not summed over them.
#include <fathom/parallel/placement.hpp>

using namespace fathom;

using stream = tensor<float, axis::tokens, axis::hidden>;

#ifdef REFUSED
// refused: fathom: a mesh axis is spent twice on one tensor. fix: name each mesh axis in one of shard<>,
//     replicate<> and sum_over<>, once.
using words = placed<stream, shard<axis::tokens, mesh_axis::cp>, sum_over<mesh_axis::dp, mesh_axis::cp>>;
#else
using words = placed<stream, shard<axis::tokens, mesh_axis::cp>, sum_over<mesh_axis::dp>>;
#endif

constexpr words here{stream{}};
