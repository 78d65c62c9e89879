#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <fathom/checkpoint/safetensors.hpp>
#include <fathom/ops/router.hpp>
#include <limits>
#include <string>
#include <vector>

#include "numbers.hpp"

namespace fathom::test {

using ops::router_facts;

namespace {

constexpr router_facts v3{.experts = 8,
                          .top_k = 3,
                          .groups = 4,
                          .topk_group = 2,
                          .score = router_facts::score_kind::sigmoid,
                          .group_score = router_facts::group_kind::best_two,
                          .normalise = true,
                          .scaling_factor = 2.5,
                          .bias = true};
constexpr router_facts v2{.experts = 8, .top_k = 3, .groups = 4, .topk_group = 2, .scaling_factor = 4};

template <class A> struct routed {
    numbers<A> scores, weights;
    std::vector<std::int32_t> ids;
    routed(host::queue& queue, const router_facts& facts, numbers<A>& logits, const A* bias = nullptr)
        : scores(logits.rows, facts.experts),
          weights(logits.rows, facts.top_k),
          ids(static_cast<std::size_t>(logits.rows * facts.top_k)) {
        ops::route(queue, facts, logits.view(), bias, scores.view(), view(), weights.view());
    }
    matrix<std::int32_t> view() { return {ids.data(), weights.rows, weights.width}; }
};

template <class A> pool workers_for(int count, const router_facts& facts) {
    return pool(count, ops::router_scratch<A>(facts));
}

std::string in_tests(const char* path) {
    const char* root = std::getenv("FATHOM_SOURCE_ROOT");
    return std::string(root == nullptr ? "." : root) + "/tests/" + path;
}

template <class T> std::vector<T> values(const safetensors::stored_tensor& from) {
    std::vector<T> result(from.bytes.size() / sizeof(T));
    std::memcpy(result.data(), from.bytes.data(), from.bytes.size());
    return result;
}

/// Routing of every layer in a stored case: same experts, same weights. `bias` layers have one in the checkpoint.
void equals_stored(const std::string& folder, const router_facts& facts, bool biased) {
    const safetensors::file io{in_tests((folder + "/io.safetensors").c_str())};
    const safetensors::file model{in_tests((folder + "/model.safetensors").c_str())};
    for (const std::string layer : {"layer1", "layer2"}) {
        const auto& stored = io.at("router." + layer + ".logits");
        numbers<double> logits(stored.shape[0], facts.experts), expected(stored.shape[0], facts.top_k);
        logits.memory = values<double>(stored);
        expected.memory = values<double>(io.at("router." + layer + ".topk_weights"));
        std::vector<double> bias;
        if (biased) {
            const auto name = "model.layers." + layer.substr(5) + ".mlp.gate.e_score_correction_bias";
            for (const float number : values<float>(model.at(name))) bias.push_back(static_cast<double>(number));
        }
        auto on = workers_for<double>(2, facts);
        routed<double> found(on.queue, facts, logits, biased ? bias.data() : nullptr);
        const auto ids = values<std::int64_t>(io.at("router." + layer + ".topk_ids"));
        CHECK(std::vector<std::int64_t>(found.ids.begin(), found.ids.end()) == ids);
        CHECK(distance(found.weights, expected) < 1e-13);
    }
}

}  // namespace

TEST_CASE("router: experts and weights are those of the reference cases") {
    equals_stored("oracle/v3_plain", v3, true);
    equals_stored("oracle/v2_group_limited", v2, false);
}

TEST_CASE("router: ties go to the lower index, among groups too") {
    numbers<double> logits(2, 8);  // all the same
    logits.view()(1, 7) = 1;
    for (const auto& facts : {v3, v2}) {
        auto on = workers_for<double>(1, facts);
        routed<double> found(on.queue, facts, logits);
        CHECK(found.ids == std::vector<std::int32_t>{0, 1, 2, 0, 1, 7});
    }
}

TEST_CASE("router: a bias chooses and does not weigh") {
    numbers<double> logits(1, 8, 4);
    auto free = v3;
    free.groups = free.topk_group = 1;
    double bias[8]{};
    bias[5] = bias[6] = bias[0] = 10;
    auto on = workers_for<double>(1, free);
    routed<double> found(on.queue, free, logits, bias);
    CHECK(found.ids == std::vector<std::int32_t>{0, 5, 6});
    CHECK(found.weights(0, 0) + found.weights(0, 1) + found.weights(0, 2) == doctest::Approx(2.5));
    CHECK(found.weights(0, 1) / found.weights(0, 0) == doctest::Approx(found.scores(0, 5) / found.scores(0, 0)));
}

TEST_CASE("router: a group counts by its best expert, or by its two best, with biases below zero too") {
    numbers<double> logits(1, 8);
    double bias[] = {-1, -9, -3, -2, -9, -9, -9, -9};  // groups of four
    auto facts = v3;
    facts.groups = 2, facts.topk_group = 1;
    bias[4] = -0.5;  // the best expert, alone
    auto on = workers_for<double>(1, facts);
    CHECK(routed<double>(on.queue, facts, logits, bias).ids == std::vector<std::int32_t>{0, 2, 3});
    facts.group_score = router_facts::group_kind::maximum;
    CHECK(routed<double>(on.queue, facts, logits, bias).ids == std::vector<std::int32_t>{4, 5, 6});
}

TEST_CASE("router: logits that are not numbers still give distinct experts") {
    numbers<float> logits(1, 8);
    for (auto& logit : logits.memory) logit = std::numeric_limits<float>::quiet_NaN();
    for (const auto& facts : {v3, v2}) {
        auto on = workers_for<float>(1, facts);
        const auto ids = routed<float>(on.queue, facts, logits).ids;
        CHECK((0 <= ids[0] && ids[0] < ids[1] && ids[1] < ids[2] && ids[2] < 8));
    }
}

TEST_CASE("router: float is near double, with the same bits for any number of workers") {
    constexpr integer tokens = 200;
    for (const auto& facts : {v3, v2}) {
        numbers<double> exact_logits(tokens, 8, 3, 2);
        numbers<float> logits(tokens, 8, 3, 2);
        auto one = workers_for<double>(1, facts);
        routed<double> exact(one.queue, facts, exact_logits);
        std::vector<float> first;
        for (const int workers : {1, 2, 3}) {
            auto on = workers_for<float>(workers, facts);
            routed<float> found(on.queue, facts, logits);
            CHECK(found.ids == exact.ids);
            CHECK(distance(found.weights, exact.weights) < tolerance<float>);
            if (workers == 1) first = found.weights.memory;
            CHECK(same_bits(found.weights.memory, first));
        }
    }
}

TEST_CASE("router: gradients equal central differences, of weights and of scores") {
    for (auto facts : {v3, v2})
        for (const bool normalise : {false, true})
            for (const bool extra : {false, true}) {
                facts.normalise = normalise;
                numbers<double> logits(6, 8, 3), dweights(6, 3, 4), dscores(6, 8, 5), dlogits(6, 8, 9), by_slope(6, 8);
                auto on = workers_for<double>(2, facts);
                routed<double> at(on.queue, facts, logits);
                ops::route_backward(on.queue, facts, dlogits.view(), dweights.view(), at.scores.view(), at.view(),
                                    at.weights.view(), extra ? dscores.view() : matrix<double>{});
                const auto loss = [&] {
                    routed<double> here(on.queue, facts, logits);
                    double sum = 0;
                    for (std::size_t i = 0; i < here.weights.memory.size(); ++i)
                        sum += here.weights.memory[i] * dweights.memory[i];
                    for (std::size_t i = 0; extra && i < here.scores.memory.size(); ++i)
                        sum += here.scores.memory[i] * dscores.memory[i];
                    return sum;
                };
                for (std::size_t i = 0; i < logits.memory.size(); ++i)
                    by_slope.memory[i] = slope(&logits.memory[i], loss);
                CHECK(distance(dlogits, by_slope) < 1e-7);
            }
}

TEST_CASE("router: facts that do not fit are refused") {
    pool on(1, 4096);
    numbers<double> logits(1, 8);
    auto facts = v3;
    facts.top_k = 5;  // two groups of two hold four
    CHECK_THROWS_AS(routed<double>(on.queue, facts, logits), error);
    facts = v3;
    facts.experts = 12;
    CHECK_THROWS_AS(routed<double>(on.queue, facts, logits), error);
    CHECK(v3.consistent());
}

TEST_CASE("router: the bias moves against the load, as stored") {
    const safetensors::file io{in_tests("reference/bias_update/io.safetensors")};
    auto bias = values<double>(io.at("before"));
    const auto load = values<std::int64_t>(io.at("load"));
    const auto after = values<double>(io.at("after"));
    const double gamma = values<double>(io.at("gamma"))[0];
    pool on(1);
    const std::size_t experts = bias.size();
    REQUIRE(load.size() == 4 * experts);
    for (std::size_t step = 0; step < 4; ++step) {
        ops::bias_update(on.queue, bias.data(), load.data() + step * experts, static_cast<integer>(experts), gamma);
        for (std::size_t e = 0; e < experts; ++e)
            CHECK(bias[e] == doctest::Approx(after[step * experts + e]).epsilon(1e-14));
    }
}

TEST_CASE("router: loads add up over micro-batches") {
    pool on(1);
    integer load[] = {1, 0, 2};
    const integer offsets[] = {0, 4, 4, 5};
    ops::add_load(on.queue, load, offsets, 3);
    CHECK(std::vector<integer>(load, load + 3) == std::vector<integer>{5, 0, 3});
}

}  // namespace fathom::test
