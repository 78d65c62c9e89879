// Only what is there can be cut.
#include <fathom/parallel/placement.hpp>

using namespace fathom;

using stream = tensor<float, axis::tokens, axis::hidden>;

#ifdef REFUSED
// refused: fathom: a placement cuts an axis that the tensor does not have. fix: name one of its own axes in
//     shard<>.
using words = placed<stream, shard<axis::vocabulary, mesh_axis::tp>>;
#else
using words = placed<stream, shard<axis::hidden, mesh_axis::tp>>;
#endif

constexpr words here{stream{}};
