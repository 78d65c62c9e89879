// An axis has one degree.
#include <fathom/parallel/mesh.hpp>

using namespace fathom;

#ifdef REFUSED
// refused: fathom: a mesh axis is given twice. fix: write each of dp, tp, pp, cp, ep and etp at most once in mesh<>.
constexpr mesh<tp<1>, pp<1>, tp<1>> layout;
#else
constexpr mesh<tp<1>, pp<1>, ep<1>> layout;
#endif
