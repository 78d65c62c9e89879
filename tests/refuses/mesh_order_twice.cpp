// A rank has one number.
#include <fathom/parallel/mesh.hpp>

using namespace fathom;

using order = rank_order<mesh_axis::tp, mesh_axis::cp, mesh_axis::dp, mesh_axis::pp>;

#ifdef REFUSED
// refused: fathom: a mesh has two orders of ranks. fix: keep one rank_order<...>.
constexpr mesh<tp<2>, order, order> layout;
#else
constexpr mesh<tp<2>, order> layout;
#endif
