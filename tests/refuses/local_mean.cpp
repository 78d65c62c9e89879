// The mean of a rank's tokens weighs tokens of other ranks in another way.
#include <fathom/parallel/count.hpp>

using namespace fathom;

#ifdef REFUSED
// refused: fathom: a mean is taken over local counts. fix: sum them over the ranks that share the batch, and
//     divide by the count<counted::global> that this gives.
using targets = count<counted::local>;
#else
using targets = count<counted::global>;
#endif

constexpr double weight = weight_in_mean(1, targets{12});
