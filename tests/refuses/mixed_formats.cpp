// The optimizer adds gradients and moments to master weights: one format.
#include <fathom/recipe/precision.hpp>

using namespace fathom;

#ifdef REFUSED
// refused: fathom: master weights, gradients and moments mix number formats. fix: keep all three in fp32 beside
//     weights<bf16> or weights<fp32>, and in fp64 beside weights<fp64>.
constexpr precision<weights<bf16>, master<fp32>, gradients<bf16>, moments<fp32>> numbers;
#else
constexpr precision<weights<bf16>, master<fp32>, gradients<fp32>, moments<fp32>> numbers;
#endif
