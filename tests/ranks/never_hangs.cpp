// Layouts under random delays and every order of operations that a program may not rely on, with sends that wait for
// their receives: nothing hangs and no bit changes.
#include <fathom/parallel/schedule/words.hpp>
#include <memory>

#include "layout_runs.hpp"

namespace fathom::test {
namespace {

using runs = layout_runs<models::latent_family, double>;
using faulty_ranks = comm::faulty<comm::threads::communicator>;
using routing = run_factors::routing;

struct delayed {
    degrees mesh;
    schedule::built (*schedule)(int ranks, int micro_batches) = nullptr;
    integer stages = 1;
    integer micro_batches = 2;
    integer zero = 0, shard_within = 0;
    routing load = routing::as_learned;
    nn::context_exchange exchange = nn::context_exchange::all_gather;
};
template <class Schedule> constexpr auto made = &schedule::built::of<Schedule>;

constexpr delayed layouts[] = {
    {.mesh = {.dp = 2, .pp = 2, .ep = 2}, .stages = 2, .zero = 1},
    {.mesh = {.pp = 2, .cp = 2, .ep = 2}, .stages = 2, .load = routing::one_expert_idle},
    {.mesh = {.pp = 2, .tp = 2, .cp = 2, .ep = 4}, .stages = 2, .load = routing::few_experts},
    {.mesh = {.dp = 2, .pp = 2, .cp = 2, .ep = 4}, .schedule = made<schedule::gpipe>, .stages = 2, .zero = 2},
    {.mesh = {.dp = 2, .tp = 2, .ep = 2, .etp = 2}, .load = routing::few_experts},
    {.mesh = {.dp = 2, .cp = 2, .ep = 4}, .zero = 3},
    {.mesh = {.dp = 4, .tp = 2, .ep = 2}, .zero = 2, .shard_within = 2},
    {.mesh = {.tp = 4, .cp = 2}},
    {.mesh = {.pp = 4}, .schedule = made<schedule::zb_v>, .stages = 8, .micro_batches = 4},
    {.mesh = {.pp = 4, .cp = 2, .ep = 2}, .schedule = made<schedule::zb_h1>, .stages = 4, .micro_batches = 5},
    {.mesh = {.pp = 2, .tp = 2, .ep = 2}, .schedule = made<schedule::dual_pipe>, .stages = 2, .micro_batches = 4},
    {.mesh = {.dp = 2, .pp = 2, .ep = 2},
     .schedule = made<schedule::dual_pipe_v>,
     .stages = 4,
     .micro_batches = 4,
     .zero = 1},
    {.mesh = {.pp = 2, .cp = 4}, .stages = 2, .exchange = nn::context_exchange::ring},
    {.mesh = {.dp = 2, .tp = 2, .cp = 2}, .zero = 3, .exchange = nn::context_exchange::ring},
    {.mesh = {.pp = 2, .cp = 2},
     .schedule = made<schedule::interleaved_one_f_one_b<2>>,
     .stages = 4,
     .micro_batches = 4},
};

void check_seeds(const delayed& of, std::uint64_t first, std::uint64_t count) {
    run_factors f;
    f.config.num_hidden_layers = 7;
    f.sequences = of.mesh.dp * of.micro_batches * runs::shape.sequences;
    f.steps = 2;
    f.load = of.load;
    f.choices.exchange = of.exchange;
    const train::layout_facts layout{.mesh = of.mesh,
                                     .zero = of.zero,
                                     .shard_within = of.shard_within,
                                     .schedule = of.schedule,
                                     .layers = stages_for(of.stages, f.config),
                                     .micro_batches = of.micro_batches};
    const std::string text = text_of_layout(layout);
    CAPTURE(text);
    const history expected = runs::on(layout, f);
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        CAPTURE(seed);
        const history seen = runs::on(layout, f, [&](comm::threads::communicator& mine) {
            return std::make_unique<faulty_ranks>(std::move(mine),
                                                  comm::faults{.seed = seed, .delay = 0.3, .reorder = 0.3});
        });
        CHECK(seen.numbers == expected.numbers);
        CHECK(seen.weights.tensors() == expected.weights.tensors());
        CHECK(seen.weights.unlike() == 0);
    }
}

}  // namespace

TEST_CASE("never hangs: 200 seeds of delays and reordering over a dozen layouts, the same bits") {
    constexpr std::uint64_t each = 200 / std::size(layouts) + 1;
    for (std::size_t i = 0; i < std::size(layouts); ++i) check_seeds(layouts[i], each * i, each);
}

TEST_SUITE("all") {
    TEST_CASE("never hangs: 200 seeds in each of these layouts") {
        for (const delayed& of : layouts) check_seeds(of, 0, 200);
    }
}

}  // namespace fathom::test
