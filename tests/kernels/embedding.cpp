#include <doctest/doctest.h>

#include <cstdint>
#include <fathom/ops/embedding.hpp>
#include <fathom/ops/embedding/kernel.hpp>
#include <utility>
#include <vector>

#include "../unit/ops/numbers.hpp"
#include "launch.hpp"

namespace fathom::test {

TEST_CASE_TEMPLATE("the kernels of the embedding equal the host bit for bit", T, double, float, bf16) {
    using A = accumulator_t<T>;
    using forward = ops::embed_kernel<T>;
    using backward = ops::embed_backward_kernel<T>;
    pool p(1);
    constexpr integer vocabulary = 40;
    for (const auto& [rows, width] : {std::pair<integer, integer>{0, 5},
                                      {1, 1},
                                      {300, 40},
                                      {600, 37}}) {  // several rounds of a block's threads, tokens that come again
        std::vector<std::int32_t> tokens;
        for (integer r = 0; r < rows; ++r)
            tokens.push_back(static_cast<std::int32_t>((r * r + r / 290 * 7) % vocabulary));
        numbers<T> table(vocabulary, width, 1, 1, 8), y(rows, width), found = y, dy(rows, width, 2, 1, 1);
        numbers<A> dtable(vocabulary, width, 3), found_d = dtable;
        ops::embed(p.queue, y.view(), tokens.data(), table.view());
        ops::embed_backward(p.queue, dtable.view(), tokens.data(), matrix<const T>{dy.view()});
        launch(forward{}, forward::blocks(rows), found.view(), vector_view<const std::int32_t>(tokens.data(), rows),
               matrix<const T>{table.view()});
        launch(backward{}, backward::blocks(rows), found_d.view(), vector_view<const std::int32_t>(tokens.data(), rows),
               matrix<const T>{dy.view()});
        CHECK(same_bits(found.memory, y.memory));
        CHECK(same_bits(found_d.memory, dtable.memory));
    }
}

TEST_CASE("the kernel of the embedding ends at a token outside of the vocabulary" * doctest::test_suite("simulated")) {
    numbers<float> table(4, 8), y(2, 8);
    for (const std::int32_t token : {-1, 4}) {
        const std::vector<std::int32_t> tokens{0, token};
        CHECK_THROWS_WITH_AS(launch(ops::embed_kernel<float>{}, 2, y.view(), vector_view(tokens.data(), 2),
                                    matrix<const float>{table.view()}),
                             "kernel embed, block 1, thread 0: a token outside of the vocabulary", error);
    }
}

}  // namespace fathom::test
