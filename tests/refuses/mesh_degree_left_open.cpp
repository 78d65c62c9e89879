// How layers are split decides what each rank holds: the type says it.
#include <fathom/parallel/mesh.hpp>

using namespace fathom;

#ifdef REFUSED
// refused: fathom: only the extent of dp may be left to the start. fix: give tp, pp, cp, ep and etp a number.
constexpr mesh<dp<1>, tp<any>> layout;
#else
constexpr mesh<dp<any>, tp<1>> layout;
#endif
