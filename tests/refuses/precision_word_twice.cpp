// The second of two formats would be ignored in silence.
#include <fathom/recipe/precision.hpp>

using namespace fathom;

#ifdef REFUSED
// refused: fathom: a word of precision<> is given twice. fix: keep one of the two.
constexpr precision<weights<bf16>, weights<fp32>> numbers;
#else
constexpr precision<weights<bf16>, moments<fp32>> numbers;
#endif
