// Quantisation to E4M3 on the host: what products in eight bits read, with a scale a tile.
#pragma once

#include <algorithm>
#include <cmath>
#include <fathom/core/e4m3.hpp>
#include <fathom/core/error.hpp>
#include <fathom/core/number.hpp>
#include <fathom/device/host/queue.hpp>
#include <fathom/tensor/matrix.hpp>
#include <type_traits>

namespace fathom::ops {

/// Columns of a tile that has one scale.
inline constexpr integer quantise_columns = 128;
/// The least that a tile's largest number counts as, so that zeros have a scale.
inline constexpr float quantise_floor = 1e-4f;

/// y = x / scale rounded to E4M3, where each tile of tile_rows x 128 numbers has scale = max(|x|, 1e-4) / 448:
/// tile_rows is 1 for activations and 128 for weights (DeepSeek-V3 §3.3.2). Tiles at the ends are smaller; NaN in a
/// tile stays where it is. y[M, W], scales[pieces(M, tile_rows), pieces(W, 128)], x[M, W]. Errors: scales of another
/// shape.
template <class T>
void quantise(host::queue& queue, matrix<e4m3> y, matrix<float> scales, std::type_identity_t<matrix<const T>> x,
              integer tile_rows) {
    if (scales.rows != pieces(x.rows, tile_rows) || scales.width != pieces(x.width, quantise_columns))
        fail("quantise: found scales [", scales.rows, ", ", scales.width, "], expected [", pieces(x.rows, tile_rows),
             ", ", pieces(x.width, quantise_columns), "]");
    queue.enqueue(scales.rows, [=](integer task, int) {
        const integer end = std::min(x.rows, (task + 1) * tile_rows);
        for (integer tile = 0; tile < scales.width; ++tile) {
            const integer first = tile * quantise_columns, last = std::min(x.width, first + quantise_columns);
            float most = quantise_floor;
            for (integer r = task * tile_rows; r < end; ++r)
                for (integer c = first; c < last; ++c) {
                    const float size = std::fabs(static_cast<float>(x(r, c)));
                    most = most < size ? size : most;
                }
            const float scale = scales(task, tile) = most / e4m3::largest;
            for (integer r = task * tile_rows; r < end; ++r)
                for (integer c = first; c < last; ++c) y(r, c) = e4m3{static_cast<float>(x(r, c)) / scale};
        }
    });
}

}  // namespace fathom::ops
