// This version has one kind of parallelism.
#include <fathom/parallel/mesh.hpp>

using namespace fathom;

#ifdef REFUSED
// refused: fathom: this version splits the data, not the model. fix: write mesh<dp<N>>, mesh<dp<any>> or mesh<>.
constexpr mesh<tp<2>> layout;
#else
constexpr mesh<tp<1>> layout;
#endif
