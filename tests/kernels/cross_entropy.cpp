#include <doctest/doctest.h>

#include <cstdint>
#include <fathom/ops/cross_entropy.hpp>
#include <fathom/ops/cross_entropy/kernel.hpp>
#include <vector>

#include "../unit/ops/numbers.hpp"
#include "launch.hpp"

namespace fathom::test {

TEST_CASE_TEMPLATE("the kernel of cross-entropy equals the host", A, double, float) {
    using kernel = ops::cross_entropy_kernel<A>;
    pool p(1);
    constexpr double weight = 0.25, z_weight = 1e-2;
    for (const auto& [rows, width] : {std::pair<integer, integer>{0, 4}, {1, 1}, {5, 37}, {3, 1500}})
        for (const bool gradients : {true, false})
            for (const bool z : {true, false}) {
                numbers<A> logits(rows, width, 1, 8, 3), found = logits;
                numbers<double> losses(1, rows), z_losses(1, rows), found_losses(1, rows), found_z(1, rows);
                std::vector<std::int32_t> targets;
                for (integer r = 0; r < rows; ++r)
                    targets.push_back(r == 2 ? -100 : static_cast<std::int32_t>(r * 31 % width));
                double* const z_at = z ? z_losses.data() : nullptr;
                if (gradients)
                    ops::cross_entropy(p.queue, logits.view(), targets.data(), weight, z_weight, losses.data(), z_at);
                else
                    ops::cross_entropy_forward(p.queue, logits.view(), targets.data(), losses.data(), z_at);
                launch(kernel{}, kernel::blocks(rows), found.view(),
                       vector_view<const std::int32_t>(targets.data(), rows), weight, z_weight, found_losses.view(),
                       z ? found_z.view() : matrix<double>{}, gradients);
                CHECK(distance(found, logits) < tolerance<A>);
                CHECK(distance(found_losses, losses) < tolerance<A>);
                CHECK(distance(found_z, z_losses) < tolerance<A>);
            }
}

TEST_CASE("the kernel of cross-entropy ends at a target outside of the vocabulary" * doctest::test_suite("simulated")) {
    numbers<float> logits(2, 4, 1);
    numbers<double> losses(1, 2);
    for (const std::int32_t target : {-1, 4}) {
        const std::vector<std::int32_t> targets{0, target};
        CHECK_THROWS_WITH_AS(launch(ops::cross_entropy_kernel<float>{}, 2, logits.view(),
                                    vector_view(targets.data(), 2), 1.0, 0.0, losses.view(), matrix<double>{}, true),
                             "kernel cross_entropy, block 1, thread 0: a target outside of the vocabulary", error);
    }
}

}  // namespace fathom::test
