// What is no axis has no degree.
#include <fathom/parallel/mesh.hpp>

using namespace fathom;

#ifdef REFUSED
// refused: fathom: a mesh is made of its axes only. fix: dp<N>, tp<N>, pp<N>, cp<N>, ep<N>, etp<N> and
//     rank_order<...>; the rest belongs to training<>.
constexpr mesh<int> layout;
#else
constexpr mesh<dp<any>> layout;
#endif
