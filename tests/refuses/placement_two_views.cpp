// Experts' axes lie on those of their stage.
#include <fathom/parallel/placement.hpp>

using namespace fathom;

using stream = tensor<float, axis::tokens, axis::hidden>;

#ifdef REFUSED
// refused: fathom: a tensor is placed over both views of the same ranks. fix: name dp, cp and tp, or ep and
//     etp, which lie on them.
using words = placed<stream, shard<axis::tokens, mesh_axis::ep>, shard<axis::hidden, mesh_axis::tp>>;
#else
using words = placed<stream, shard<axis::tokens, mesh_axis::ep>, shard<axis::hidden, mesh_axis::etp>>;
#endif

constexpr words here{stream{}};
