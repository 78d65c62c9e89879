// A partial sum names what it is partial over.
#include <fathom/tensor/partial.hpp>

using namespace fathom;

#ifdef REFUSED
// refused: fathom: partial<> names no mesh axis. fix: name the axes that the sum runs over.
constexpr partial<const float*> share{nullptr};
#else
constexpr partial<const float*, struct dp_axis> share{nullptr};
#endif
