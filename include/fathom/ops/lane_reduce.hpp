// Sums and maxima of one row in fixed lanes: a plain loop must add one number after the other, so no compiler may
// make vector instructions of it.
#pragma once

#include <fathom/core/bytes.hpp>

namespace fathom::ops {

/// As many as hide the latency of an addition on today's vector units; part of the order of summation.
inline constexpr int reduce_lanes = 32;

/// term(0) + ... + term(count - 1) in A: term i goes to lane i mod 32 in order, then the lanes are halved five times.
template <class A, class Term> A lane_sum(integer count, Term&& term) {
    A sums[reduce_lanes] = {};
    integer first = 0;
    for (; first + reduce_lanes <= count; first += reduce_lanes)
        for (int l = 0; l < reduce_lanes; ++l) sums[l] += term(first + l);
    for (integer l = 0; l < count - first; ++l) sums[l] += term(first + l);
    for (int half = reduce_lanes / 2; half > 0; half /= 2)
        for (int l = 0; l < half; ++l) sums[l] += sums[l + half];
    return sums[0];
}

/// The largest of count >= 1 numbers. A NaN is passed over unless it stands first.
template <class A> A lane_maximum(const A* __restrict numbers, integer count) {
    A best[reduce_lanes];
    for (A& lane : best) lane = numbers[0];
    const auto take = [](A& most, A value) { most = most < value ? value : most; };
    integer first = 0;
    for (; first + reduce_lanes <= count; first += reduce_lanes)
        for (int l = 0; l < reduce_lanes; ++l) take(best[l], numbers[first + l]);
    for (integer l = 0; l < count - first; ++l) take(best[l], numbers[first + l]);
    for (int half = reduce_lanes / 2; half > 0; half /= 2)
        for (int l = 0; l < half; ++l) take(best[l], best[l + half]);
    return best[0];
}

}  // namespace fathom::ops
