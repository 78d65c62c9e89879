#include <doctest/doctest.h>

#include <cstdint>
#include <fathom/core/e4m3.hpp>
#include <fathom/ops/quantise.hpp>
#include <fathom/ops/quantise/kernel.hpp>
#include <vector>

#include "../unit/ops/numbers.hpp"
#include "launch.hpp"

namespace fathom::test {

TEST_CASE_TEMPLATE("the kernels of quantisation equal the host bit for bit", T, float, bf16) {
    using by_rows = ops::quantise_rows_kernel<T>;
    using by_blocks = ops::quantise_blocks_kernel<T>;
    pool p(1);
    for (const auto& [rows, width] : {std::pair<integer, integer>{0, 5}, {1, 1}, {3, 128}, {130, 300}})
        for (const integer tile_rows : {1, 128}) {
            numbers<T> x(rows, width, 1, 3, 2);
            for (integer c = 0; c < width && rows > 1; ++c) x.view()(1, c) = T(0.0f);  // zeros have a scale, too
            std::vector<e4m3> y(rows * width), found = y;
            numbers<float> scales(pieces(rows, tile_rows), pieces(width, 128)), found_scales = scales;
            ops::quantise<T>(p.queue, {y.data(), rows, width}, scales.view(), x.view(), tile_rows);
            const matrix<e4m3> to{found.data(), rows, width};
            if (tile_rows == 1)
                launch(by_rows{}, by_rows::blocks(rows, width), to, found_scales.view(), matrix<const T>{x.view()});
            else
                launch(by_blocks{}, by_blocks::blocks(rows, width), to, found_scales.view(), matrix<const T>{x.view()});
            CHECK(same_bits(found, y));
            CHECK(found_scales.memory == scales.memory);
            if (rows == 0) continue;
            // What comes back is as near as three mantissa bits can be.
            double worst = 0;
            for (integer r = 0; r < rows; ++r)
                for (integer c = 0; c < width; ++c) {
                    const float scale = scales.view()(r / tile_rows, c / 128);
                    const double back = static_cast<double>(static_cast<float>(y[r * width + c]) * scale);
                    worst = std::max(worst, std::fabs(back - x(r, c)) - std::fabs(x(r, c)) / 16 - scale / 1024);
                }
            CHECK(worst <= 1e-6);
        }
}

TEST_CASE("quantisation refuses scales of another shape") {
    pool p(1);
    numbers<float> x(3, 129), scales(3, 1);
    std::vector<e4m3> y(3 * 129);
    CHECK_THROWS_WITH_AS(ops::quantise<float>(p.queue, {y.data(), 3, 129}, scales.view(), x.view(), 1),
                         "quantise: found scales [3, 1], expected [3, 2]", error);
}

}  // namespace fathom::test
