#include <doctest/doctest.h>

#include <cstdlib>
#include <fathom/checkpoint/safetensors.hpp>
#include <fathom/optim.hpp>
#include <string>

#include "../ops/numbers.hpp"

namespace fathom::test {
namespace {

std::vector<double> stored(const safetensors::file& file, const std::string& name) {
    std::vector<double> values(file.at(name).size());
    safetensors::read_as(file.at(name), std::span{values});
    return values;
}

}  // namespace

TEST_CASE("five steps with clipping equal PyTorch's AdamW in both decay groups") {
    const char* root = std::getenv("FATHOM_SOURCE_ROOT");
    const safetensors::file file{text_of(root ? root : ".", "/tests/reference/adamw/io.safetensors")};
    const auto rates = stored(file, "learning_rate"), norms = stored(file, "grad_norm");
    const std::vector<std::string> names = {"bias", "embedding", "experts", "matrix", "norm"};
    pool p(2);
    for (const auto group : {optim::decay::matrices, optim::decay::all}) {
        const std::string label = group == optim::decay::all ? "all." : "matrices.";
        std::vector<std::vector<double>> weights, m, v;
        for (const auto& name : names) {
            weights.push_back(stored(file, "initial." + name));
            m.emplace_back(weights.back().size());
            v.emplace_back(weights.back().size());
        }
        const optim::adamw_facts facts{.group = group};
        optim::step_state state;
        for (std::size_t step = 0; step < rates.size(); ++step) {
            const std::string number = std::to_string(step);
            state.learning_rate = rates[step];
            state.step = static_cast<std::int64_t>(step) + 1;
            std::vector<std::vector<double>> gradients;
            std::vector<double> squares(names.size()), partials(1);
            for (std::size_t i = 0; i < names.size(); ++i) {
                gradients.push_back(stored(file, "grad." + number + "." + names[i]));
                optim::squared_norm(p.queue, gradients[i].data(), static_cast<integer>(gradients[i].size()),
                                    partials.data(), &squares[i]);
            }
            optim::clip(p.queue, squares.data(), static_cast<integer>(squares.size()), 1.0, &state);
            CHECK(state.gradient_norm == doctest::Approx(norms[step]).epsilon(1e-13));
            for (std::size_t i = 0; i < names.size(); ++i) {
                const int axes = static_cast<int>(file.at("initial." + names[i]).shape.size());
                const optim::adamw_range<double, double> range{weights[i].data(),
                                                               weights[i].data(),
                                                               m[i].data(),
                                                               v[i].data(),
                                                               static_cast<integer>(m[i].size()),
                                                               optim::decays(facts.group, axes)};
                optim::update(p.queue, range, gradients[i].data(), facts, &state);
                const auto expected = stored(file, label + number + "." + names[i]);
                for (std::size_t j = 0; j < expected.size(); ++j)
                    CHECK(weights[i][j] == doctest::Approx(expected[j]).epsilon(1e-13));
            }
        }
        for (std::size_t i = 0; i < names.size(); ++i) {
            const auto last_m = stored(file, label + "m." + names[i]), last_v = stored(file, label + "v." + names[i]);
            for (std::size_t j = 0; j < last_m.size(); ++j) {
                CHECK(m[i][j] == doctest::Approx(last_m[j]).epsilon(1e-13));
                CHECK(v[i][j] == doctest::Approx(last_v[j]).epsilon(1e-13));
            }
        }
    }
}

TEST_CASE_TEMPLATE("weights are the master rounded, the same with any number of workers", T, float, bf16) {
    constexpr integer count = 20'011;  // some tasks and a rest
    const optim::adamw_facts facts;
    std::vector<float> first;
    for (const int workers : {1, 2, 3}) {
        pool p(workers);
        numbers<float> master(1, count, 1), gradient(1, count, 2), m(1, count), v(1, count);
        numbers<T> weights(1, count);
        for (std::int64_t step = 1; step <= 3; ++step) {
            const optim::step_state state{.learning_rate = 0.1, .step = step};
            const optim::adamw_range<T, float> range{master.data(), weights.data(), m.data(), v.data(), count, true};
            optim::adamw_update(p.queue, range, gradient.data(), facts, &state);
        }
        bool rounded = true;
        for (integer i = 0; i < count; ++i)
            rounded = rounded && weights(0, i) == static_cast<double>(static_cast<T>(master.view()(0, i)));
        CHECK(rounded);
        if (first.empty()) first = master.memory;
        CHECK(same_bits(first, master.memory));
    }
}

TEST_CASE("a first step moves by the rate against the gradient's sign, whatever its scale") {
    pool p(1);
    const double gradient[] = {8, -0.5};
    double weights[] = {1, 1}, m[2] = {}, v[2] = {};
    const optim::step_state state{.learning_rate = 0.25, .step = 1, .loss_scale = 1024, .clip_factor = 0.5};
    optim::adamw_update(p.queue, optim::adamw_range<double, double>{weights, weights, m, v, 2, false}, gradient, {},
                        &state);
    CHECK(weights[0] == doctest::Approx(0.75).epsilon(1e-5));
    CHECK(weights[1] == doctest::Approx(1.25).epsilon(1e-4));
    CHECK(m[0] == doctest::Approx(0.1 * 8 * 0.5 / 1024));
}

TEST_CASE("facts that mean nothing are refused by name") {
    optim::check({});
    CHECK_THROWS_WITH_AS(optim::check({.beta1 = 1}), "adamw: beta1 is 1, expected a number in [0, 1)", error);
    CHECK_THROWS_WITH_AS(optim::check({.beta2 = -0.5}), "adamw: beta2 is -0.5, expected a number in [0, 1)", error);
    CHECK_THROWS_WITH_AS(optim::check({.epsilon = 0}), "adamw: epsilon is 0, expected a number above 0", error);
    CHECK_THROWS_WITH_AS(optim::check({.weight_decay = NAN}), "adamw: weight_decay is nan, expected a number in [0, 1)",
                         error);
}

}  // namespace fathom::test
