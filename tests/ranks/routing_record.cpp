// Experts that one run chose are taken by another, whatever its layout and format.
#include <fathom/train/expert_loads.hpp>
#include <fathom/train/routing_record.hpp>
#include <fathom/train/saved_routes.hpp>

#include "../unit/scratch_folder.hpp"
#include "engines.hpp"
#include "layout_runs.hpp"

namespace fathom::test {
namespace {

using runs = layout_runs<models::latent_family, double>;
using train::routing_record;

run_factors small() {
    run_factors f;
    f.sequences = 8, f.steps = 2;
    return f;
}
const run_factors factors = small();
const integer top_k = factors.config.num_experts_per_tok, layers = 5;  // four blocks and a module of prediction
const routing_record::extents extents{
    .layers = layers, .sequences = 8, .length = layout_length, .experts = 8, .top_k = top_k};

/// Routes that no router would choose: any three experts of every token.
routing_record drawn_routes() {
    routing_record drawn{extents};
    const random_stream numbers{11, 3};
    std::uint64_t n = 0;
    for (integer layer = 1; layer < layers; ++layer)
        for (integer s = 0; s < extents.sequences; ++s)
            for (integer i = 0; i < layout_length - (layer == 4 ? 1 : 0); ++i) {
                std::int32_t* ids = drawn.row(layer, s) + i * top_k;
                const auto skipped = static_cast<std::int32_t>(numbers.uniform(n++) * 6);
                for (std::int32_t k = 0; k < top_k; ++k) ids[k] = k + skipped - (k == 0 && skipped > 2 ? 2 : 0);
            }
    return drawn;
}

/// What some steps of a run saw, and the loads of the last.
struct seen_run {
    std::vector<double> numbers;
    gathered weights;
    std::vector<std::vector<integer>> loads;
    routing_record routes;  // of the first step
};

template <class Engine>
void take(Engine& engine, integer replica, integer replicas, const routing_record* follow, seen_run& seen,
          std::mutex& mutex) {
    train::step_settings settings{.learning_rate = 3e-3, .balance_alpha = 0.05, .bias_update_speed = 0.01};
    engine.initialise(1);
    const layout_batch batch{factors, 3};
    const integer each = factors.sequences / replicas;
    for (integer step = 0; step < factors.steps; ++step) {
        routing_record mine;
        settings.routes = {.record = &mine, .follow = follow};
        const train::step_result r = engine.step(batch.part(replica * each, each), settings);
        if (engine.ranks().rank() != 0) continue;
        for (const double x : {r.loss, r.mtp_loss, r.balance_loss, r.gradient_norm}) seen.numbers.push_back(x);
        if (step == 0) seen.routes = std::move(mine);
    }
    gather(engine, seen.weights, mutex, &Engine::parameter::value);
    const auto loads = train::expert_loads(engine);
    if (engine.ranks().rank() != 0) return;
    for (const auto& layer : loads) seen.loads.push_back(layer.tokens);
}
template <class Engine, class Family = models::latent_family> seen_run alone(const routing_record* follow = nullptr) {
    seen_run seen;
    std::mutex mutex;
    Engine engine{Family::template transformer<typename Engine::T>(factors.config),
                  {.batch = runs::shape, .workers = 1},
                  0,
                  optim::adamw_facts{}};
    take(engine, 0, 1, follow, seen, mutex);
    return seen;
}
template <class T = double>
seen_run on(const train::layout_facts& layout, const routing_record* follow = nullptr, nn::recomputation again = {}) {
    seen_run seen;
    std::mutex mutex;
    const auto model = models::latent_family::transformer<T, true>(factors.config, again);
    comm::threads::run(layout.mesh.ranks(), [&](auto& ranks) {
        train::engine<std::remove_const_t<decltype(model)>> engine{
            model, {.batch = runs::shape, .workers = 1}, 0, optim::adamw_facts{}, comm::link{ranks}, layout};
        take(engine, engine.links().at.dp, layout.mesh.dp, follow, seen, mutex);
    });
    return seen;
}
void check_alike(const seen_run& seen, const seen_run& expected) {
    difference numbers, weights;
    numbers.add("losses and norms", seen.numbers, expected.numbers);
    CHECK_MESSAGE(numbers.most <= 1e-10, numbers.where, " differ by ", numbers.most);
    weights.add(seen.weights.tensors(), expected.weights.tensors());
    CHECK_MESSAGE(weights.most <= 1e-10, "weight ", weights.where, " differs by ", weights.most);
    CHECK(seen.loads == expected.loads);
    CHECK(seen.routes.of() == expected.routes.of());
    CHECK(seen.routes.ids() == expected.routes.ids());
}

template <class Schedule> train::layout_facts scheduled(degrees mesh, integer stages) {
    return {.mesh = mesh,
            .schedule = &schedule::built::of<Schedule>,
            .layers = stages_for(stages, factors.config),
            .micro_batches = 4 / mesh.dp};
}
const std::pair<train::layout_facts, nn::recomputation> layouts[] = {
    {{.micro_batches = 4}, {}},
    {{.mesh = {.dp = 2, .tp = 2}, .zero = 1, .micro_batches = 2}, {}},
    {{.mesh = {.tp = 2, .cp = 2, .ep = 4}, .zero = 3, .micro_batches = 4}, {.norms = true}},
    {{.mesh = {.dp = 2, .tp = 2, .ep = 2, .etp = 2}, .micro_batches = 2}, {}},
    {{.mesh = {.dp = 2, .cp = 4, .ep = 2}, .micro_batches = 2}, {.blocks = true}},
    {scheduled<schedule::one_f_one_b>({.dp = 2, .pp = 2, .ep = 2}, 2), {.blocks = true}},
    {scheduled<schedule::zb_v>({.pp = 2, .tp = 2}, 4), {}},
    {scheduled<schedule::dual_pipe>({.pp = 2, .cp = 2}, 2), {}}};

}  // namespace

TEST_CASE("routing record: what routers choose, the same from every layout; a run that follows its own is itself") {
    const seen_run expected = alone<runs::whole_engine>();
    for (integer layer = 0; layer < layers; ++layer)
        for (integer s = 0; s < extents.sequences; ++s)
            for (integer i = 0; i < layout_length; ++i) {
                const bool routed = layer > 0 && (layer < 4 || i < layout_length - 1);
                const std::int32_t* ids = expected.routes.row(layer, s) + i * top_k;
                CHECK((ids[0] >= 0 && ids[0] < ids[1] && ids[1] < ids[2]) == routed);
            }
    for (const auto& [layout, again] : layouts) {
        CAPTURE(text_of_layout(layout));
        check_alike(on(layout, nullptr, again), expected);
    }
    // The first step's batch is the second's, too, but its weights have moved: only the first step is the same.
    const seen_run again = alone<runs::whole_engine>(&expected.routes);
    CHECK(again.numbers[0] == expected.numbers[0]);
    CHECK(again.numbers[3] == expected.numbers[3]);
}

TEST_CASE("routing record: other routes are followed in every layout, with one rank's numbers") {
    const routing_record routes = drawn_routes();
    const seen_run expected = alone<runs::whole_engine>(&routes);
    CHECK(expected.routes.ids() == routes.ids());
    std::vector<std::vector<integer>> loads(4, std::vector<integer>(8));
    for (integer layer = 1; layer < layers; ++layer)
        for (integer i = 0; i < extents.sequences * layout_length * top_k; ++i)
            if (const std::int32_t id = routes.row(layer, 0)[i]; id >= 0)
                ++loads[static_cast<std::size_t>(layer - 1)][static_cast<std::size_t>(id)];
    CHECK(expected.loads == loads);
    for (const auto& [layout, again] : layouts) {
        CAPTURE(text_of_layout(layout));
        check_alike(on(layout, &routes, again), expected);
    }
}

TEST_CASE("routing record: gradients of routers flow through the weights of the experts that are followed") {
    const routing_record routes = drawn_routes();
    runs::whole_engine engine{models::latent_family::transformer<double>(factors.config),
                              {.batch = runs::shape, .workers = 1},
                              0,
                              optim::adamw_facts{}};
    engine.initialise(1);
    const layout_batch batch{factors, 3};
    const train::step_settings settings{.balance_alpha = 0, .routes = {.follow = &routes}};
    const auto whole = batch.part(0, factors.sequences);
    engine.accumulate(whole, settings);
    integer looked_at = 0;
    engine.each_part([&](const auto& p, const nn::part& part) {
        if (p.name.find("mlp.gate.weight") == std::string::npos) return;
        for (integer at = 0; at < 3; ++at) {
            double& x = p.value(part.first + at, 5 * at);
            const double here = x, step = 1e-5, gradient = p.gradient(part.first + at, 5 * at);
            x = here + step;
            const double above = engine.evaluate(whole, settings).loss;
            x = here - step;
            const double below = engine.evaluate(whole, settings).loss;
            x = here;
            CHECK(gradient != 0);
            CHECK((above - below) / (2 * step) == doctest::Approx(gradient).epsilon(1e-5));
            ++looked_at;
        }
    });
    CHECK(looked_at == 3 * 4);
}

TEST_CASE("routing record: a run in bf16 follows one in fp32") {
    using fp32 = train::engine<transformer_of_family<models::latent_family, float, false>>;
    const seen_run expected = alone<fp32>();
    const train::layout_facts layout{.mesh = {.dp = 2, .tp = 2}, .micro_batches = 2};
    const seen_run free = on<bf16>(layout), bound = on<bf16>(layout, &expected.routes);
    CHECK(free.routes.ids() != expected.routes.ids());
    CHECK(bound.routes.ids() == expected.routes.ids());
    CHECK(bound.numbers[0] == doctest::Approx(expected.numbers[0]).epsilon(0.01));
}

TEST_CASE("routing record: a file has it whole, and other files are refused") {
    const scratch_folder folder;
    const routing_record routes = drawn_routes();
    train::save_routes(routes, folder / "routes.safetensors");
    const routing_record read = train::load_routes(folder / "routes.safetensors");
    CHECK(read.of() == routes.of());
    CHECK(read.ids() == routes.ids());
    std::vector<std::int64_t> numbers(6);
    const std::int64_t experts = 8;
    const auto with = [&](std::vector<std::int64_t> shape, bool whole = false) {
        std::vector<safetensors::stored_tensor> tensors{
            {"ids", safetensors::dtype::i64, shape, std::as_bytes(std::span{numbers}), {}}};
        if (whole)
            tensors.push_back({"experts", safetensors::dtype::i64, {}, std::as_bytes(std::span{&experts, 1}), {}});
        safetensors::write(folder / "other.safetensors", tensors);
        return message_of([&] { (void)train::load_routes(folder / "other.safetensors"); });
    };
    CHECK(with({2, 3}).ends_with("found shape [2, 3], expected [layers, sequences, length, top_k]"));
    CHECK(with({1, 1, 2, 3}).find("\"experts\"") != std::string::npos);
    numbers[4] = (std::int64_t{1} << 32) + 1;  // 1, if it were cut to 32 bits
    CHECK(with({1, 1, 2, 3}, true)
              .ends_with("found 4294967297 at index 4, expected an expert in [0, 8), or -1 for none"));
}

TEST_CASE("routing record: routes that do not fit are refused") {
    const auto refused = [](const routing_record& routes, const train::layout_facts& layout) {
        const std::string text = message_of([&] { on(layout, &routes); });  // after the rank
        const std::size_t at = text.find("routing record");
        return at == text.npos ? text : text.substr(at);
    };
    const train::layout_facts split{.mesh = {.dp = 2, .tp = 2}, .micro_batches = 2};
    const std::string expected = ", expected 8 sequences of 16 tokens that go to 3 of 8 experts in 5 layers";
    const auto other = [&](auto&& change) {
        routing_record::extents of = extents;
        change(of);
        return refused(routing_record{of}, split);
    };
    CHECK(other([](auto& of) { of.sequences = 4; }) ==
          "routing record: found 4 sequences of 16 tokens that go to 3 of 8 experts in 5 layers" + expected);
    for (const std::string& text : {other([](auto& of) { of.length = 8; }), other([](auto& of) { of.layers = 4; }),
                                    other([](auto& of) { of.experts = 16; }), other([](auto& of) { of.top_k = 2; })}) {
        CAPTURE(text);
        CHECK(text.ends_with(expected));
    }
    const auto broken = [&](integer layer, integer sequence, integer token, std::int32_t id) {
        routing_record routes = drawn_routes();
        routes.row(layer, sequence)[token * top_k + 1] = id;
        return refused(routes, split);
    };
    const std::string ascending = " as number 1, expected 3 ascending ones in [0, 8)";
    CHECK(broken(2, 5, 7, 8) == "routing record: layer 2, token 7 of sequence 5: found expert 8" + ascending);
    CHECK(broken(1, 0, 15, -1) == "routing record: layer 1, token 15 of sequence 0: found expert -1" + ascending);
    CHECK(broken(4, 0, 15, -1) == "no error");  // a token that the module of multi-token prediction does not have
    routing_record twice = drawn_routes();
    twice.row(3, 2)[1] = twice.row(3, 2)[0];
    CHECK(refused(twice, split).starts_with("routing record: layer 3, token 0 of sequence 2: found expert "));
}

}  // namespace fathom::test
