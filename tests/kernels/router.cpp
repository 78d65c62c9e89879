#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <fathom/ops/router.hpp>
#include <fathom/ops/router/kernel.hpp>
#include <vector>

#include "../unit/ops/numbers.hpp"
#include "launch.hpp"

namespace fathom::test {

namespace {

using facts_of = ops::router_facts;

std::vector<facts_of> all_facts() {
    facts_of v2, v3, small, one;
    v2.experts = 160, v2.top_k = 6, v2.groups = 8, v2.topk_group = 3, v2.scaling_factor = 16;
    v3.experts = 256, v3.top_k = 8, v3.groups = 8, v3.topk_group = 4, v3.scaling_factor = 2.5;
    v3.score = facts_of::score_kind::sigmoid, v3.group_score = facts_of::group_kind::best_two;
    v3.normalise = v3.bias = true;
    small.experts = 5, small.top_k = 5, small.normalise = true;
    one.experts = 33, one.top_k = 1, one.groups = 3, one.topk_group = 2;
    return {v2, v3, small, one};
}

}  // namespace

TEST_CASE_TEMPLATE("the kernels of the router equal the host", A, double, float) {
    using forward = ops::route_kernel<A>;
    using backward = ops::route_backward_kernel<A>;
    pool p(1, 4096);
    for (const facts_of& facts : all_facts())
        for (const integer tokens : {0, 1, 21}) {
            REQUIRE(forward::takes(facts));
            numbers<A> logits(tokens, facts.experts, 1, 2, 1), bias(1, facts.experts, 2, 0.1);
            for (integer t = 0; t < tokens; ++t)  // ties: some experts have the same logit, one token has nothing else
                for (integer e = 0; e < facts.experts; ++e)
                    if (t == 3 || e % 5 == 1) logits.view()(t, e) = A(0.5);
            const bool biased = facts.bias;
            numbers<A> scores(tokens, facts.experts), weights(tokens, facts.top_k), found_scores = scores,
                                                                                    found_weights = weights;
            numbers<std::int32_t> ids(tokens, facts.top_k), found_ids = ids;
            ops::route(p.queue, facts, logits.view(), biased ? bias.data() : nullptr, scores.view(), ids.view(),
                       weights.view());
            launch(forward{facts}, forward::blocks(tokens), found_scores.view(), found_ids.view(), found_weights.view(),
                   matrix<const A>{logits.view()}, biased ? matrix<const A>{bias.view()} : matrix<const A>{});
            CHECK(distance(found_scores, scores) < tolerance<A>);
            CHECK(distance(found_weights, weights) < tolerance<A>);
            CHECK(found_ids.memory == ids.memory);

            for (const bool balanced : {false, true}) {
                numbers<A> dweights(tokens, facts.top_k, 3), dscores(tokens, facts.experts, 4),
                    found_d = dscores, dlogits(tokens, facts.experts);
                const matrix<const A> none{};
                ops::route_backward(p.queue, facts, dlogits.view(), dweights.view(), scores.view(), ids.view(),
                                    weights.view(), balanced ? matrix<const A>{dscores.view()} : none);
                launch(backward{facts}, backward::blocks(tokens), found_d.view(), matrix<const A>{dweights.view()},
                       matrix<const A>{scores.view()}, matrix<const std::int32_t>{ids.view()},
                       matrix<const A>{weights.view()}, balanced ? matrix<const A>{found_d.view()} : none);
                CHECK(distance(found_d, dlogits) < 10 * tolerance<A>);  // normalising takes numbers of like size apart
            }
        }
}

TEST_CASE("the kernel of the router gives distinct experts whatever the logits are") {
    facts_of facts;
    facts.experts = 70, facts.top_k = 4, facts.groups = 7, facts.topk_group = 2;
    facts.score = facts_of::score_kind::sigmoid;
    numbers<float> logits(2, 70, 1), scores(2, 70), weights(2, 4);
    for (integer e = 0; e < 70; ++e) logits.view()(1, e) = e == 50 ? 1.0f : NAN;
    numbers<std::int32_t> ids(2, 4);
    launch(ops::route_kernel<float>{facts}, 1, scores.view(), ids.view(), weights.view(),
           matrix<const float>{logits.view()}, matrix<const float>{});
    const std::vector<std::int32_t> chosen(ids.memory.begin() + 4, ids.memory.end());
    CHECK(chosen == std::vector<std::int32_t>{0, 1, 2, 50});
}

TEST_CASE("the kernels of loads and biases equal the host") {
    pool p(1);
    constexpr integer experts = 300;
    std::vector<integer> offsets(experts + 1), load(experts, 2), found = load;
    for (integer e = 0; e < experts; ++e) offsets[e + 1] = offsets[e] + (e < 3 ? 4 : e * e % 7);
    numbers<float> bias(1, experts, 1), found_bias = bias;
    ops::add_load(p.queue, load.data(), offsets.data(), experts);
    ops::bias_update(p.queue, bias.data(), load.data(), experts, 1e-3);
    launch(ops::add_load_kernel{}, ops::add_load_kernel::blocks(experts), vector_view(found.data(), experts),
           vector_view<const integer>(offsets.data(), experts + 1));
    launch(ops::bias_update_kernel<float>{}, 1, found_bias.view(), vector_view<const integer>(found.data(), experts),
           1e-3);
    CHECK(found == load);
    CHECK(found_bias.memory == bias.memory);
}

}  // namespace fathom::test
