// A pipeline does what one rank does in the same order: with one copy of the parameters every bit is the same, in
// single precision too.
#include <fathom/parallel/schedule/words.hpp>

#include "layout_runs.hpp"

namespace fathom::test {
namespace {

using runs = layout_runs<models::latent_family, float>;

template <class Schedule> void check_bits(integer ranks, integer micro_batches, const nn::recomputation& again) {
    CAPTURE(std::string{Schedule::name});
    CAPTURE(ranks);
    CAPTURE(micro_batches);
    run_factors f;
    f.config.num_hidden_layers = 7;
    f.config.num_nextn_predict_layers = 0;  // or the embedding has a copy on the last stage
    f.again = again;
    f.sequences = 2 * micro_batches - 1;
    f.steps = 3;
    const history seen = runs::on({.mesh = {.pp = ranks},
                                   .schedule = &schedule::built::of<Schedule>,
                                   .layers = stages_for(ranks * Schedule::chunks, f.config),
                                   .micro_batches = micro_batches},
                                  f);
    const history expected = runs::alone(f);
    CHECK(seen.gradients.tensors() == expected.gradients.tensors());
    CHECK(seen.weights.tensors() == expected.weights.tensors());
    CHECK(seen.biases == expected.biases);
    // Losses and norms are sums of doubles that lie on several ranks.
    compare(seen, expected, true, 1e-13);
}

}  // namespace

TEST_CASE("schedules: one copy of the parameters gives every bit of one rank in float") {
    for (const integer ranks : {2, 4})
        for (const nn::recomputation& again : {nn::recomputation{}, nn::recomputation{.blocks = true}}) {
            check_bits<schedule::gpipe>(ranks, 3, again);
            check_bits<schedule::one_f_one_b>(ranks, 5, again);
            check_bits<schedule::interleaved_one_f_one_b<2>>(ranks, 4, again);
            check_bits<schedule::zb_h1>(ranks, 5, again);
            check_bits<schedule::zb_v>(ranks, 5, again);
            check_bits<schedule::dual_pipe_v>(ranks, 8, again);
        }
}

TEST_CASE("schedules: a batch of more micro-batches than there is room for is refused, of fewer it is taken") {
    run_factors f;
    f.sequences = 8;
    const auto model = models::latent_family::transformer<float, true>(f.config);
    comm::threads::run(2, [&](auto& mine) {
        runs::split_engine engine{model,
                                  {.batch = runs::shape, .workers = 1},
                                  0,
                                  optim::adamw_facts{},
                                  comm::link{mine},
                                  {.mesh = {.pp = 2},
                                   .schedule = &schedule::built::of<schedule::gpipe>,
                                   .layers = stages_for(2, f.config),
                                   .micro_batches = 2}};
        engine.initialise(1);
        const layout_batch batch{f, 0};
        CHECK(engine.step(batch.part(0, 2), {}).tokens == 2 * layout_length);
        CHECK(engine.step(batch.part(0, 4), {}).tokens == 4 * layout_length);
        const std::string text = [&] {
            try {
                engine.step(batch.part(0, 8), {});
            } catch (const error& problem) {
                return std::string{problem.what()};
            }
            return std::string{};
        }();
        CHECK(text.find("found a batch of 4 micro-batches") != std::string::npos);
        CHECK(text.find("expected at most as many") != std::string::npos);
        CHECK(engine.evaluate(batch.part(0, 8), {}).tokens == 8 * layout_length);
    });
}

}  // namespace fathom::test
