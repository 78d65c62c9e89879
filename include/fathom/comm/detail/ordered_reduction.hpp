// Sums over ranks in the order of ranks, whatever brings the numbers here: the same bits on every rank and every
// engine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fathom/comm/request.hpp>
#include <fathom/core/number.hpp>
#include <type_traits>

namespace fathom::comm::detail {

template <class T> inline T reduced(T a, T b, reduction how) {
    if (how == reduction::max) return b > a || b != b ? b : a;
    if constexpr (std::is_integral_v<T>)
        return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
    else
        return a + b;
}

/// Reduces elements [begin, end): source(rank) is a rank's buffer; give(block, begin, count) gets the results piece by
/// piece, each piece after all ranks' numbers for it were read, so results may go where numbers came from.
template <class T, class Source, class Give>
void ordered_reduction_of(integer ranks, integer begin, integer end, reduction how, Source&& source, Give&& give) {
    using sum = std::conditional_t<std::is_same_v<T, bf16>, float, T>;
    constexpr integer block = 512;  // stays in the nearest cache beside one rank's numbers
    alignas(64) sum total[block];
    alignas(64) T result[block];
    for (integer at = begin; at < end; at += block) {
        const integer n = std::min(block, end - at);
        const T* from = static_cast<const T*>(static_cast<const void*>(source(0))) + at;
        for (integer i = 0; i < n; ++i) total[i] = static_cast<sum>(from[i]);
        for (integer rank = 1; rank < ranks; ++rank) {
            from = static_cast<const T*>(static_cast<const void*>(source(rank))) + at;
            if (how == reduction::sum)
                for (integer i = 0; i < n; ++i) total[i] = reduced(total[i], static_cast<sum>(from[i]), reduction::sum);
            else
                for (integer i = 0; i < n; ++i) total[i] = reduced(total[i], static_cast<sum>(from[i]), reduction::max);
        }
        if constexpr (std::is_same_v<T, bf16>) {
            for (integer i = 0; i < n; ++i) result[i] = bf16{total[i]};
            give(static_cast<const void*>(result), at, n);
        } else {
            give(static_cast<const void*>(total), at, n);
        }
    }
}

template <class Source, class Give>
void ordered_reduction(element format, integer ranks, integer begin, integer end, reduction how, Source&& source,
                       Give&& give) {
    switch (format) {
        case element::fp64:
            return ordered_reduction_of<double>(ranks, begin, end, how, source, give);
        case element::fp32:
            return ordered_reduction_of<float>(ranks, begin, end, how, source, give);
        case element::bf16:
            return ordered_reduction_of<bf16>(ranks, begin, end, how, source, give);
        case element::int64:
            return ordered_reduction_of<std::int64_t>(ranks, begin, end, how, source, give);
        case element::int32:
            return ordered_reduction_of<std::int32_t>(ranks, begin, end, how, source, give);
        case element::byte:
            return;  // no request adds bytes
    }
}

}  // namespace fathom::comm::detail
