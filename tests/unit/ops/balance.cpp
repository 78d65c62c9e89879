#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fathom/checkpoint/safetensors.hpp>
#include <fathom/ops/balance.hpp>
#include <fathom/ops/router.hpp>
#include <string>
#include <vector>

#include "numbers.hpp"

namespace fathom::test {

using ops::router_facts;

namespace {

constexpr router_facts sigmoid{.experts = 8, .top_k = 3, .score = router_facts::score_kind::sigmoid};

template <class A> numbers<A> scores_of(integer tokens, integer experts) {
    numbers<A> scores(tokens, experts, 3);
    for (auto& score : scores.memory) score = A{1} / (A{1} + std::exp(-score));
    return scores;
}

std::vector<double> values(const safetensors::stored_tensor& from) {
    std::vector<double> result(from.bytes.size() / sizeof(double));
    std::memcpy(result.data(), from.bytes.data(), from.bytes.size());
    return result;
}

}  // namespace

TEST_CASE("balance: the sequence-wise loss and its gradient by the logits are those stored") {
    const char* root = std::getenv("FATHOM_SOURCE_ROOT");
    const safetensors::file io{std::string(root == nullptr ? "." : root) +
                               "/tests/reference/v3_balance/io.safetensors"};
    pool on(2, ops::balance_scratch<double>(sigmoid));
    for (const std::string layer : {"layer1", "layer2"}) {
        numbers<double> scores(24, 8), dscores(24, 8), dlogits(24, 8), expected(24, 8), none(24, 3);
        scores.memory = values(io.at("router." + layer + ".logits"));
        for (auto& score : scores.memory) score = 1 / (1 + std::exp(-score));
        expected.memory = values(io.at("balance." + layer + ".grad_logits"));
        double loss = 1;
        ops::balance_loss(on.queue, sigmoid, 2, 12, scores.view(), 0.05, &loss, dscores.view());
        CHECK(loss - 1 == doctest::Approx(values(io.at("balance." + layer + ".loss"))[0]).epsilon(1e-12));
        const std::vector<std::int32_t> any(24 * 3);
        ops::route_backward(on.queue, sigmoid, dlogits.view(), none.view(), scores.view(),
                            matrix<const std::int32_t>{any.data(), 24, 3}, none.view(), dscores.view());
        CHECK(distance(dlogits, expected) < 1e-12);
    }
}

TEST_CASE("balance: gradients equal central differences, by scores and by chosen experts, and add up") {
    constexpr integer sequences = 3, length = 5, tokens = sequences * length;
    std::vector<std::int32_t> ids(tokens * 3);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i % 3 * 2 + i / 3 % 2 + i / 17);
    for (const bool chosen : {false, true}) {
        auto scores = scores_of<double>(tokens, 8);
        const auto counted = chosen ? matrix<const std::int32_t>{ids.data(), tokens, 3} : matrix<const std::int32_t>{};
        pool on(2, ops::balance_scratch<double>(sigmoid));
        numbers<double> gradient(tokens, 8), by_slope(tokens, 8);
        for (auto& number : gradient.memory) number = 1;
        ops::balance_loss(on.queue, sigmoid, sequences, length, scores.view(), 0.5, nullptr, gradient.view(), 4,
                          counted);
        const auto loss = [&] {
            double sum = 0;
            ops::balance_loss(on.queue, sigmoid, sequences, length, scores.view(), 0.5, &sum, matrix<double>{}, 1,
                              counted);
            return sum;
        };
        for (std::size_t i = 0; i < scores.memory.size(); ++i)
            by_slope.memory[i] = 1 + 4 * slope(&scores.memory[i], loss);
        CHECK(distance(gradient, by_slope) < 1e-8);
    }
}

TEST_CASE("balance: equal loads and scores cost alpha, one busy expert costs more") {
    constexpr router_facts one{.experts = 4, .top_k = 1};
    pool on(1, ops::balance_scratch<float>(one));
    numbers<float> even(4, 4), busy(4, 4);
    for (integer t = 0; t < 4; ++t)
        for (integer e = 0; e < 4; ++e) {
            even.view()(t, e) = e == t ? 0.7f : 0.1f;
            busy.view()(t, e) = e == 2 ? 0.7f : 0.1f;
        }
    double loss = 0, busy_loss = 0;
    ops::balance_loss(on.queue, one, 1, 4, even.view(), 0.01, &loss, matrix<float>{});
    ops::balance_loss(on.queue, one, 1, 4, busy.view(), 0.01, &busy_loss, matrix<float>{});
    CHECK(loss == doctest::Approx(0.01));
    CHECK(busy_loss == doctest::Approx(0.028));
}

TEST_CASE("balance: the same bits for any number of workers, also for many sequences") {
    constexpr integer sequences = 150, length = 2;
    auto scores = scores_of<float>(sequences * length, 8);
    std::vector<float> first;
    double first_loss = 0;
    for (const int workers : {1, 2, 3}) {
        pool on(workers, ops::balance_scratch<float>(sigmoid));
        numbers<float> gradient(sequences * length, 8);
        double loss = 0;
        ops::balance_loss(on.queue, sigmoid, sequences, length, scores.view(), 1, &loss, gradient.view());
        if (workers == 1) first = gradient.memory, first_loss = loss;
        CHECK(same_bits(gradient.memory, first));
        CHECK(loss == first_loss);
    }
    CHECK(first_loss > 1);
}

TEST_CASE("balance: ranks that share tokens add their sums and have the loss and gradients of the whole") {
    // Places 0 to 4 of three sequences are on one context rank, which three ranks share in flat order, the last without
    // any; places 5 to 7 are on another.
    constexpr integer sequences = 3, length = 8, early = 5, tokens = sequences * length;
    std::vector<std::int32_t> ids(tokens * 3);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i % 3 * 2 + i / 3 % 2 + i / 37);
    const integer shares[][4] = {{0, early, 0, 8}, {0, early, 8, 7}, {0, early, 15, 0}, {early, length - early, 0, 9}};
    for (const bool chosen : {false, true}) {
        auto scores = scores_of<double>(tokens, 8);
        pool on(2, ops::balance_scratch<double>(sigmoid));
        numbers<double> expected(tokens, 8), gradient(tokens, 8), sums(sequences, 16);
        double expected_loss = 0, loss = 1;
        ops::balance_loss(on.queue, sigmoid, sequences, length, scores.view(), 0.5 * sequences, &expected_loss,
                          expected.view(), 1,
                          chosen ? matrix<const std::int32_t>{ids.data(), tokens, 3} : matrix<const std::int32_t>{});
        for (const bool backward : {false, true}) {
            for (const auto& [place, here, first, count] : shares) {
                const auto row_of = [&, from = place, of = here, start = first](integer t) {
                    return (start + t) / of * length + from + (start + t) % of;
                };
                numbers<double> own(count, 8), part(sequences, 16, 3), dscores(count, 8);
                std::vector<std::int32_t> own_ids;
                for (integer t = 0; t < count; ++t) {
                    std::copy_n(scores.view().row(row_of(t)), 8, own.view().row(t));
                    own_ids.insert(own_ids.end(), ids.data() + 3 * row_of(t), ids.data() + 3 * row_of(t) + 3);
                }
                if (!backward) {
                    ops::balance_sums<double>(
                        on.queue, sigmoid, here, first, own.view(),
                        chosen ? matrix<const std::int32_t>{own_ids.data(), count, 3} : matrix<const std::int32_t>{},
                        part.view());
                    for (std::size_t i = 0; i < sums.memory.size(); ++i) sums.memory[i] += part.memory[i];
                } else {
                    ops::balance_of_sums_backward<double>(on.queue, sigmoid, length, here, first, own.view(),
                                                          sums.view(), 0.5, dscores.view());
                    for (integer t = 0; t < count; ++t)
                        std::copy_n(dscores.view().row(t), 8, gradient.view().row(row_of(t)));
                }
            }
        }
        ops::balance_of_sums(on.queue, sigmoid, length, sums.view(), 0.5, &loss);
        CHECK(loss - 1 == doctest::Approx(expected_loss).epsilon(1e-12));
        CHECK(distance(gradient, expected) < 1e-12);
    }
}

TEST_CASE("balance: shapes that do not fit are refused") {
    pool on(1, ops::balance_scratch<float>(sigmoid));
    numbers<float> scores(6, 8);
    CHECK_THROWS_AS(ops::balance_loss(on.queue, sigmoid, 2, 4, scores.view(), 1, nullptr, matrix<float>{}), error);
}

}  // namespace fathom::test
