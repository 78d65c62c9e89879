// The loads of experts are those of one rank in every layout, and what placements are made of.
#include <fathom/train/expert_loads.hpp>

#include "engines.hpp"
#include "layout_runs.hpp"

namespace fathom::test {
namespace {

using runs = layout_runs<models::latent_family, double>;

std::vector<train::expert_load> loads_on(const train::layout_facts& layout, const run_factors& f) {
    std::vector<train::expert_load> seen;
    comm::threads::run(layout.mesh.ranks(), [&](auto& ranks) {
        runs::split_engine engine{models::latent_family::transformer<double, true>(f.config),
                                  {.batch = runs::shape, .workers = 1},
                                  0,
                                  optim::adamw_facts{},
                                  comm::link{ranks},
                                  layout};
        engine.initialise(1);
        const layout_batch batch{f, 3};
        const integer each = f.sequences / layout.mesh.dp;
        engine.step(batch.part(engine.links().at.dp * each, each), {.learning_rate = 1e-3});
        auto loads = train::expert_loads(engine);
        if (ranks.rank() == 0) seen = std::move(loads);
    });
    return seen;
}

}  // namespace

TEST_CASE("expert loads: every layer's, whatever the layout") {
    const run_factors f;
    const auto expected = loads_on({.micro_batches = 8}, f);
    REQUIRE(expected.size() == 4);  // three blocks with experts and a module of multi-token prediction
    const integer tokens = f.sequences * layout_length, chosen = f.config.num_experts_per_tok;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        CHECK(expected[i].layer == static_cast<integer>(i) + 1);
        CHECK(expected[i].total() == (i < 3 ? tokens : tokens - f.sequences) * chosen);  // none is dropped
        CHECK(expected[i].max_violation() > 0);
    }
    const train::layout_facts layouts[] = {
        {.mesh = {.dp = 2, .pp = 2, .ep = 2}, .layers = stages_for(2, f.config), .micro_batches = 4},
        {.mesh = {.tp = 2, .cp = 2, .ep = 4}, .micro_batches = 8},
        {.mesh = {.pp = 2},
         .schedule = &schedule::built::of<schedule::dual_pipe>,
         .layers = stages_for(2, f.config),
         .micro_batches = 8}};
    for (const auto& layout : layouts) {
        CAPTURE(text_of_layout(layout));
        const auto seen = loads_on(layout, f);
        REQUIRE(seen.size() == expected.size());
        for (std::size_t i = 0; i < seen.size(); ++i) {
            CHECK(seen[i].layer == expected[i].layer);
            CHECK(seen[i].tokens == expected[i].tokens);
        }
    }
}

TEST_CASE("expert loads: how far from balanced, and copies for it") {
    const train::expert_load uneven{.layer = 2, .tokens = {6, 1, 1, 0}};
    CHECK(uneven.max_violation() == 2);
    CHECK(train::expert_load{.layer = 0, .tokens = {3, 3, 3}}.max_violation() == 0);
    CHECK(train::expert_load{.layer = 0, .tokens = {0, 0}}.max_violation() == 0);
    const expert_placement placed = uneven.placement({.replicas = 8, .groups = 1, .nodes = 1, .gpus = 4});
    CHECK(placed.copies[0] == 5);
    CHECK_THROWS_AS((void)uneven.placement({.replicas = 2, .gpus = 2}), error);
}

}  // namespace fathom::test
