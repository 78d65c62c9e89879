// Weights are numbers of a format that kernels know.
#include <fathom/recipe/precision.hpp>

using namespace fathom;

#ifdef REFUSED
// refused: fathom: weights have a number format. fix: weights<bf16>, weights<fp32> or weights<fp64>.
constexpr precision<weights<int>> numbers;
#else
constexpr precision<weights<bf16>> numbers;
#endif
