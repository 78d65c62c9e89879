#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <fathom/ops/balance.hpp>
#include <fathom/ops/balance/kernel.hpp>
#include <vector>

#include "../unit/ops/numbers.hpp"
#include "launch.hpp"

namespace fathom::test {

TEST_CASE_TEMPLATE("the kernels of the balance loss equal the host", A, double, float) {
    for (const integer experts : {3, 40, 300})
        for (const bool by_choice : {false, true}) {
            constexpr integer sequences = 3, length = 5, tokens = sequences * length, top_k = 2;
            const ops::router_facts facts{.experts = experts, .top_k = top_k};
            pool p(1, ops::balance_scratch<A>(facts));
            numbers<A> scores(tokens, experts, 1), host(tokens, experts, 2), found = host;
            for (A& score : scores.memory) score = std::fabs(score) + A(0.125);
            scores.view()(1, 2) = scores.view()(1, 0);  // of equal scores, the first
            std::vector<std::int32_t> chosen;
            for (integer t = 0; t < tokens; ++t) chosen.insert(chosen.end(), {static_cast<std::int32_t>(t % 2), 2});
            const matrix<const std::int32_t> ids =
                by_choice ? matrix<const std::int32_t>{chosen.data(), tokens, top_k} : matrix<const std::int32_t>{};
            double loss = 0.5, found_loss = 0.5;
            constexpr double alpha = 0.3;
            ops::balance_loss<A>(p.queue, facts, sequences, length, scores.view(), alpha, &loss, host.view(), 1, ids);

            using of_sums = ops::balance_sums_kernel<A>;
            using backward = ops::balance_backward_kernel<A>;
            numbers<double> sums(sequences, 2 * experts, 9);
            const matrix<const A> from = scores.view();
            const matrix<const double> of = sums.view();
            launch(of_sums{facts}, of_sums::blocks(sequences), sums.view(), from, ids);
            launch(ops::balance_loss_kernel{facts}, 1, vector_view(&found_loss, 1), of, length, alpha / sequences);
            launch(backward{facts}, backward::blocks(tokens), found.view(), from, of, alpha / sequences);
            CHECK(found_loss == doctest::Approx(loss).epsilon(1e-12));
            CHECK(loss != 0.5);
            CHECK(distance(found, host) < tolerance<A>);
        }
}

}  // namespace fathom::test
