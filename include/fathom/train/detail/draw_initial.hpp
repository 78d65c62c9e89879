// What parameters are before the first step: drawn by global index, so that they are equal in every layout.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fathom/core/random_stream.hpp>
#include <fathom/device/host/queue.hpp>
#include <fathom/nn/parameter.hpp>
#include <fathom/tensor/matrix.hpp>

namespace fathom::train::detail {

/// Draws what this rank holds of a matrix of a storage. values[M, W], master[M, W] or empty.
template <class T, class A>
void draw_initial(host::queue& queue, matrix<T> values, matrix<A> master, const nn::storage& facts,
                  const nn::part& part, random_stream source, double range) {
    const nn::initial how = facts.start;
    const integer width = facts.whole_width(), first = part.row * width + facts.column;
    constexpr integer piece = 8192;
    const integer rows = std::max<integer>(1, piece / values.width);
    queue.enqueue(pieces(values.rows, rows), [=](integer task, int) {
        for (integer r = task * rows; r < std::min(values.rows, (task + 1) * rows); ++r)
            for (integer c = 0; c < values.width; ++c) {
                const double drawn = how == nn::initial::normal
                                         ? range * source.normal(static_cast<std::uint64_t>(first + r * width + c))
                                     : how == nn::initial::one ? 1.0
                                                               : 0.0;
                const auto number = static_cast<A>(drawn);
                values(r, c) = static_cast<T>(number);
                if (!master.empty()) master(r, c) = number;
            }
    });
}

}  // namespace fathom::train::detail
