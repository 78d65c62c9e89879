// This version has no communication between ranks.
#include <fathom/parallel/mesh.hpp>

using namespace fathom;

#ifdef REFUSED
// refused: fathom: this version trains on one rank. fix: write mesh<> (or dp<any>, started as one rank).
constexpr mesh<tp<2>> layout;
#else
constexpr mesh<tp<1>> layout;
#endif
