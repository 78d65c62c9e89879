// A degree is a number of ranks.
#include <fathom/parallel/mesh.hpp>

using namespace fathom;

#ifdef REFUSED
// refused: fathom: a degree of parallelism is a number of ranks. fix: pick 1 or more in mesh<>, or dp<any>.
constexpr mesh<pp<0>> layout;
#else
constexpr mesh<pp<1>> layout;
#endif
