// The first tensor that differs between two runs is the one in which a fault was planted, on the rank that has it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fathom/train/first_difference.hpp>
#include <fathom/train/record_step.hpp>
#include <functional>
#include <initializer_list>
#include <span>

#include "engines.hpp"
#include "layout_runs.hpp"

namespace fathom::test {
namespace {

using runs = layout_runs<models::latent_family, double>;
using kind = train::recorded_tensor::kind;
constexpr train::step_settings settings{.balance_alpha = 0.05, .z_loss = 1e-3};

/// A step in a layout; plant(engine) may break a rank's engine before it.
void record(const train::layout_facts& layout, train::recorded_step& seen,
            const std::function<void(runs::split_engine&)>& plant = nullptr) {
    const run_factors f;
    const layout_batch batch{f, 3};
    const auto model = models::latent_family::transformer<double, true>(f.config);
    comm::threads::run(layout.mesh.ranks(), [&](auto& ranks) {
        runs::split_engine engine{
            model, {.batch = runs::shape, .workers = 1}, 0, optim::adamw_facts{}, comm::link{ranks}, layout};
        engine.initialise(1);
        if (plant) plant(engine);
        train::record_step(engine, batch.part(0, f.sequences), settings, seen);
    });
}
/// The same in a program of one rank that splits nothing.
void record_alone(train::recorded_step& seen) {
    const run_factors f;
    const layout_batch batch{f, 3};
    runs::whole_engine engine{models::latent_family::transformer<double>(f.config),
                              {.batch = runs::shape, .workers = 1},
                              0,
                              optim::adamw_facts{}};
    engine.initialise(1);
    train::record_step(engine, batch.part(0, f.sequences), settings, seen);
}

const run_factors factors;
const train::layout_facts tensor_and_data{.mesh = {.dp = 2, .tp = 2}, .zero = 1, .micro_batches = 4};
const train::layout_facts data_and_pipeline{
    .mesh = {.dp = 2, .pp = 2, .ep = 2}, .layers = stages_for(2, factors.config), .micro_batches = 4};

}  // namespace

TEST_CASE("compare: a step in layouts is one rank's") {
    train::recorded_step alone;
    record_alone(alone);
    // Every block's two, chosen experts of three, the embedding, the norm, a prediction's, five losses; weights and
    // gradients of all parameters.
    integer forward = 0, weights = 0, gradients = 0;
    for (const auto* tensor : alone.in_order()) {
        forward += tensor->what == kind::forward ? 1 : 0;
        weights += tensor->what == kind::weight ? 1 : 0;
        gradients += tensor->what == kind::gradient ? 1 : 0;
    }
    CHECK(forward == 2 * 4 + 3 + 3 + 5);
    CHECK(weights > 4 * 10);
    CHECK(weights == gradients);
    const train::layout_facts layouts[] = {{.micro_batches = 8},
                                           tensor_and_data,
                                           data_and_pipeline,
                                           {.mesh = {.tp = 2, .cp = 2, .ep = 4}, .zero = 3, .micro_batches = 8},
                                           {.mesh = {.pp = 2},
                                            .schedule = &schedule::built::of<schedule::zb_v>,
                                            .layers = stages_for(4, factors.config),
                                            .micro_batches = 8},
                                           {.mesh = {.pp = 2},
                                            .schedule = &schedule::built::of<schedule::dual_pipe>,
                                            .layers = stages_for(2, factors.config),
                                            .micro_batches = 8}};
    for (const auto& layout : layouts) {
        CAPTURE(text_of_layout(layout));
        train::recorded_step seen;
        record(layout, seen);
        CHECK(seen.tensors().size() == alone.tensors().size());
        const auto found = train::first_difference(seen, alone, 1e-10);
        CHECK_MESSAGE(!found, (found ? train::describe(*found) : std::string{}));
    }
}

TEST_CASE("compare: a fault planted on one rank is named with its tensor and rank") {
    train::recorded_step alone;
    record_alone(alone);
    integer rank = 3;
    const auto move_a_weight = [&rank](runs::split_engine& engine) {
        if (engine.ranks().rank() != rank) return;
        engine.each_part([](const auto& p, const nn::part& part) {
            if (p.name == "model.layers.2.self_attn.o_proj.weight") p.value(part.first, 0) += 0.5;
        });
    };
    SUBCASE("a weight of one replica's tensor rank") {
        train::recorded_step seen;
        record({.mesh = {.dp = 2, .tp = 2}, .micro_batches = 4}, seen, move_a_weight);
        const auto found = train::first_difference(seen, alone, 1e-10);
        REQUIRE(found);
        CAPTURE(train::describe(*found));
        CHECK(found->what == kind::weight);
        CHECK(found->tensor == "model.layers.2.self_attn.o_proj.weight");
        CHECK(found->layer == 2);
        CHECK(found->ranks == std::vector<integer>{3});
        CHECK(found->row == 0);
        CHECK(found->column == 20);  // its columns begin in the middle of 8 heads of 5
        CHECK(found->found - found->expected == doctest::Approx(0.5));
    }
    SUBCASE("the same where another rank answers for the weight: its replica's product") {
        train::recorded_step seen;
        rank = 1;
        record(tensor_and_data, seen, move_a_weight);
        auto found = train::first_difference(seen, alone, 1e-10);
        REQUIRE(found);
        CAPTURE(train::describe(*found));
        CHECK(found->tensor == "layers.2.attention");
        CHECK(found->operation == "o_proj and residual");
        std::sort(found->ranks.begin(), found->ranks.end());
        CHECK(found->ranks == std::vector<integer>{0, 1});
    }
    SUBCASE("the bias of a router on one rank: other experts") {
        train::recorded_step seen;
        record(data_and_pipeline, seen, [](runs::split_engine& engine) {
            if (engine.ranks().rank() != 1) return;
            engine.each_router_bias([](const std::string& name, const auto& bias) {
                if (name.starts_with("model.layers.1.")) bias.data[2] = 100;
            });
        });
        const auto found = train::first_difference(seen, alone, 1e-10);
        REQUIRE(found);
        CAPTURE(train::describe(*found));
        CHECK(found->tensor == "layers.1.experts");
        CHECK(found->operation == "router");
        CHECK(found->ranks == std::vector<integer>{1});
    }
    SUBCASE("rotary angles of the second stage of a replica") {
        train::recorded_step seen;
        integer broken = -1;
        record(data_and_pipeline, seen, [&broken](runs::split_engine& engine) {
            if (engine.links().at.dp != 1 || engine.links().at.pp != 1) return;
            broken = engine.ranks().rank();
            for (integer i = 0; i < engine.memory().cosines.size(); ++i) engine.memory().cosines.data[i] *= 0.9;
        });
        for (const bool first : {true, false}) {
            const auto found =
                first ? train::first_difference(seen, alone, 1e-10) : train::first_difference(alone, seen, 1e-10);
            REQUIRE(found);
            CAPTURE(train::describe(*found));
            CHECK(found->what == kind::forward);
            const integer layer = stages_for(2, factors.config)(1).first - 1;
            CHECK(found->tensor == text_of("layers.", layer, ".attention"));
            CHECK(found->layer == layer);
            CHECK(found->ratio > 1e-10);
            CHECK(found->ranks == std::vector<integer>{first ? broken : 0});
        }
    }
}

TEST_CASE("compare: stored tensors") {
    train::recorded_step seen;
    record({.mesh = {.tp = 2}, .micro_batches = 8}, seen);
    const std::string path = text_of("/tmp/fathom_compare_", std::hash<const void*>{}(&seen), ".safetensors");
    seen.write(path);
    {
        train::recorded_step stored;
        stored.read(path, seen);
        CHECK(stored.tensors().size() == seen.tensors().size());
        CHECK(!train::first_difference(seen, stored, 0));
    }
    // Two tensors as another trainer stores them: [sequences, length, hidden] in float, one number moved.
    const auto [values, ranks] = seen.find("layers.1.output")->whole();
    std::vector<float> moved(values.begin(), values.end());
    const integer hidden = factors.config.hidden_size;
    moved[static_cast<std::size_t>(5 * hidden + 7)] += 1;
    safetensors::stored_tensor tensor{"layers.1.output",
                                      safetensors::dtype::f32,
                                      {factors.sequences, layout_length, hidden},
                                      std::as_bytes(std::span{moved}),
                                      {}};
    safetensors::write(path, std::span{&tensor, 1});
    {
        train::recorded_step stored;
        stored.read(path, seen);
        const auto found = train::first_difference(seen, stored, 1e-5);
        REQUIRE(found);
        CHECK(found->tensor == "layers.1.output");
        CHECK(found->layer == 1);
        CHECK(found->row == 5);
        CHECK(found->column == 7);
        CHECK(found->expected - found->found == doctest::Approx(1));
    }
    tensor.name = "layers.9.output";
    safetensors::write(path, std::span{&tensor, 1});
    train::recorded_step stored;
    CHECK_THROWS_WITH_AS(stored.read(path, seen), doctest::Contains("found no such tensor in the step"), error);
    tensor.name = "layers.1.output", tensor.shape = {hidden, factors.sequences, layout_length};
    safetensors::write(path, std::span{&tensor, 1});
    CHECK_THROWS_WITH_AS(stored.read(path, seen), doctest::Contains("expected [256, 24]"), error);
    std::remove(path.c_str());
}

TEST_CASE("compare: gradients are looked at in the order of backward, and copies each by itself") {
    const auto step = [](train::recorded_step& to, std::initializer_list<double> last_layer, double first_layer) {
        integer rank = 0;
        for (const double x : last_layer) {
            to.add({"model.layers.1.w", kind::gradient, 1, {}, -20, 1, 1, {{rank, 0, 0, 1, 1, {x}}}});
            ++rank;
        }
        to.add({"model.layers.0.w", kind::gradient, 0, {}, -10, 1, 1, {{0, 0, 0, 1, 1, {first_layer}}}});
    };
    train::recorded_step a, b, copies, bad;
    step(a, {2}, 3);
    step(b, {2.5}, 4);
    step(copies, {2, 2, 2.25}, 3);
    step(bad, {std::nan("")}, 3);
    const auto found = train::first_difference(a, b, 0.1);
    REQUIRE(found);
    CHECK(found->tensor == "model.layers.1.w");
    CHECK(found->ratio == doctest::Approx(0.2));
    CHECK(train::describe(*found) ==
          "backward of layer 1: gradient of model.layers.1.w differs by 0.2 on rank 0 of the "
          "first: [0, 0] is 2, expected 2.5");
    CHECK(train::first_difference(a, b, 0.22)->tensor == "model.layers.0.w");
    const auto copy = train::first_difference(a, copies, 1e-3);
    REQUIRE(copy);
    CHECK(copy->ranks == std::vector<integer>{2});
    CHECK(!copy->of_first);
    CHECK(!train::first_difference(a, a, 0));
    CHECK(train::first_difference(bad, a, 1e9));
    train::recorded_step none;
    CHECK_THROWS_AS((void)train::first_difference(a, none, 0), error);
    CHECK_THROWS_WITH_AS(none.add({"w", kind::weight, 0, {}, 0, 4, 2, {{1, 3, 0, 2, 2, {1, 2, 3, 4}}}}),
                         doctest::Contains("found 4 numbers of rank 1 for rows 3 to 5"), error);
}

}  // namespace fathom::test
