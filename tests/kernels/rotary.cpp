#include <doctest/doctest.h>

#include <cstdint>
#include <fathom/ops/rotary.hpp>
#include <fathom/ops/rotary/kernel.hpp>
#include <vector>

#include "../unit/ops/numbers.hpp"
#include "launch.hpp"

namespace fathom::test {

TEST_CASE_TEMPLATE("the kernel of the rotation equals the host", T, double, float, bf16) {
    using A = accumulator_t<T>;
    pool p(1);
    constexpr integer positions = 9;
    for (const integer dim : {2, 6, 64})
        for (const bool interleaved : {false, true})
            for (const bool inverse : {false, true}) {
                constexpr integer tokens = 7, heads = 3, first = 1;
                const integer head_stride = dim + 3;
                numbers<T> x(tokens, first + heads * head_stride, 1, 1, 2), found = x;
                numbers<A> cosines(positions, dim / 2), sines(positions, dim / 2);
                ops::rope_facts facts;
                facts.dim = dim;
                ops::rope_table(facts, cosines.view(), sines.view());
                const std::vector<std::int32_t> at{0, 1, 2, 8, 3, 0, 5};
                ops::rotate(p.queue, x.view(), first, head_stride, heads, dim, interleaved, at.data(),
                            matrix<const A>{cosines.view()}, matrix<const A>{sines.view()}, inverse);
                using kernel = ops::rotate_kernel<T>;
                launch(kernel{}, kernel::blocks(tokens), found.view(), first, head_stride, heads, dim, interleaved,
                       vector_view(at.data(), tokens), matrix<const A>{cosines.view()}, matrix<const A>{sines.view()},
                       inverse);
                CHECK(distance(found, x) < tolerance<T>);
            }
}

TEST_CASE("the kernel of the rotation ends at a position outside of the tables" * doctest::test_suite("simulated")) {
    numbers<float> x(1, 2), table(4, 1);
    using kernel = ops::rotate_kernel<float>;
    for (const std::int32_t position : {-1, 4}) {
        const std::vector<std::int32_t> at{position};
        CHECK_THROWS_WITH_AS(launch(kernel{}, 1, x.view(), integer{0}, integer{2}, integer{1}, integer{2}, true,
                                    vector_view(at.data(), 1), matrix<const float>{table.view()},
                                    matrix<const float>{table.view()}, false),
                             "kernel rotate, block 0, thread 0: a position outside of the tables", error);
    }
}

}  // namespace fathom::test
