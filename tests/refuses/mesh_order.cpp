// Every axis of a rank has its place.
#include <fathom/parallel/mesh.hpp>

using namespace fathom;

#ifdef REFUSED
// refused: fathom: the order of ranks does not name each axis once. fix: rank_order<> takes mesh_axis::tp, cp,
//     dp and pp, the innermost first; experts' axes lie on those of their stage.
using order = rank_order<mesh_axis::tp, mesh_axis::ep, mesh_axis::dp, mesh_axis::pp>;
#else
using order = rank_order<mesh_axis::pp, mesh_axis::tp, mesh_axis::cp, mesh_axis::dp>;
#endif

constexpr mesh<dp<2>, tp<2>, order> layout;
