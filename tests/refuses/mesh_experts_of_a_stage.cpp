// Experts' ranks are those of one stage.
#include <fathom/parallel/mesh.hpp>

using namespace fathom;

#ifdef REFUSED
// refused: fathom: experts' ranks must divide those of their stage. fix: pick ep<N> and etp<N> whose product
//     divides dp x cp x tp.
constexpr mesh<dp<2>, pp<2>, ep<4>> layout;
#else
constexpr mesh<dp<2>, cp<2>, ep<4>> layout;
#endif
