// Numbers of things that a mean is over, told apart by who counted: a mean over what one rank has is not the batch's.
#pragma once

#include <fathom/core/bytes.hpp>

namespace fathom {

/// Whose things were counted: those of one rank, or of all that share a batch.
enum class counted : unsigned char { local, global };

/// A number of tokens, targets or sequences. Only sums over ranks make a global one of local ones.
template <counted Of> struct count { integer value = 0; };

namespace rule {

template <counted Of> struct mean_is_over_the_batch {
    static_assert(Of == counted::global,
                  "fathom: a mean is taken over local counts. fix: sum them over the ranks that share the batch, and "
                  "divide by the count<counted::global> that this gives.");
    static constexpr bool holds = true;
};

}  // namespace rule

/// What each of n things weighs in a mean that weighs `weight`; of nothing, nothing.
template <counted Of> constexpr double weight_in_mean(double weight, count<Of> n) {
    return rule::mean_is_over_the_batch<Of>::holds && n.value > 0 ? weight / static_cast<double>(n.value) : 0.0;
}

}  // namespace fathom
