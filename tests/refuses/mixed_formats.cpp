// What an optimizer reads and writes has one number format.
#include <fathom/recipe/precision.hpp>

using namespace fathom;

struct numbers : precision<weights<bf16>, master<fp32>, gradients<fp32>, moments<fp32>> {};
#ifdef REFUSED
// refused: fathom: master weights, gradients and moments mix number formats. fix: keep all three in fp32
struct mixed : precision<weights<bf16>, master<fp32>, gradients<bf16>, moments<fp32>> {};
#endif

int main() {}
