// Stages hold other layers, not parts of a tensor.
#include <fathom/parallel/placement.hpp>

using namespace fathom;

using stream = tensor<float, axis::tokens, axis::hidden>;

#ifdef REFUSED
// refused: fathom: a tensor is placed over pipeline stages. fix: leave pp out; stages hold other layers.
using words = placed<stream, replicate<mesh_axis::pp>>;
#else
using words = placed<stream, replicate<mesh_axis::dp>>;
#endif

constexpr words here{stream{}};
