// What is drawn from known probabilities.
#include <doctest/doctest.h>

#include <cmath>
#include <fathom/train/sampling.hpp>
#include <limits>
#include <vector>

#include "../scratch_folder.hpp"

namespace fathom {
namespace {

/// How often each token is drawn at places 0, 1, 2, ... from these probabilities.
std::vector<int> drawn(const std::vector<double>& probabilities, const train::sampling& how, int draws) {
    std::vector<double> logits;
    for (const double p : probabilities) logits.push_back(std::log(p) + 3);
    std::vector<train::candidate> scratch(logits.size());
    std::vector<int> counts(logits.size());
    for (int i = 0; i < draws; ++i)
        ++counts[static_cast<std::size_t>(
            train::sample<double>(logits, how, 0, static_cast<std::uint64_t>(i), scratch))];
    return counts;
}

/// The sum of (seen - expected)^2 / expected.
double chi_square(const std::vector<int>& counts, const std::vector<double>& probabilities, int draws) {
    double sum = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        const double expected = probabilities[i] * draws;
        sum += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    return sum;
}

const std::vector<double> eight{0.3, 0.05, 0.2, 0.15, 0.1, 0.1, 0.06, 0.04};

TEST_CASE("sample: draws tokens as often as they are likely") {
    // 24.3 is what seven degrees of freedom pass once in a thousand; the seed is fixed.
    CHECK(chi_square(drawn(eight, {.seed = 3}, 20'000), eight, 20'000) < 24.3);
    std::vector<double> sharper = eight;
    double sum = 0;
    for (double& p : sharper) sum += p = p * p;
    for (double& p : sharper) p /= sum;
    CHECK(chi_square(drawn(eight, {.temperature = 0.5, .seed = 3}, 20'000), sharper, 20'000) < 24.3);
    CHECK(chi_square(drawn(eight, {.seed = 3}, 20'000), sharper, 20'000) > 1'000);
}

TEST_CASE("sample: top_p keeps the fewest tokens that reach it") {
    const std::vector<double> p{0.125, 0.5, 0.125, 0.25};
    CHECK(drawn(p, {.top_p = 0.49}, 500) == std::vector{0, 500, 0, 0});
    for (const double top : {0.51, 0.74}) {
        const auto two = drawn(p, {.top_p = top}, 3'000);
        CHECK(two[0] + two[2] == 0);
        CHECK(std::abs(two[1] - 2'000) < 130);  // 5 standard deviations
    }
    const auto three = drawn(p, {.top_p = 0.76}, 3'000);  // of equals the first is kept
    CHECK(three[0] > 0);
    CHECK(three[2] == 0);
    CHECK(drawn(p, {.top_p = 0.9}, 3'000)[2] > 0);
    const auto half = drawn({0.25, 0.25, 0.25, 0.25}, {.top_p = 0.5}, 3'000);  // two reach it exactly
    CHECK((half[0] > 0 && half[1] > 0 && half[2] == 0 && half[3] == 0));
}

TEST_CASE("sample: temperature 0 takes the first of the most likely") {
    const std::vector<float> logits{1, 4, -2, 4, 0};
    std::vector<train::candidate> scratch(5);
    for (std::uint64_t place = 0; place < 50; ++place)
        CHECK(train::sample<float>(logits, {.temperature = 0}, 0, place, scratch) == 1);
}

TEST_CASE("sample: far tokens are never drawn, and near zero temperature is none") {
    const std::vector<float> logits{-1e30f, 0, -1e30f};
    std::vector<train::candidate> scratch(3);
    for (std::uint64_t place = 0; place < 50; ++place) {
        CHECK(train::sample<float>(logits, {.temperature = 100}, 0, place, scratch) == 1);
        CHECK(train::sample<float>(logits, {.temperature = 1e-300}, 0, place, scratch) == 1);
    }
}

TEST_CASE("sample: a logit that is no number is refused") {
    std::vector<float> logits{0, 1, std::numeric_limits<float>::quiet_NaN()};
    std::vector<train::candidate> scratch(3);
    CHECK(test::message_of([&] { train::sample<float>(logits, {}, 0, 0, scratch); }).find("found logit 2 to be") !=
          std::string::npos);
    logits[2] = -std::numeric_limits<float>::infinity();
    CHECK(test::message_of([&] { train::sample<float>(logits, {.temperature = 0}, 0, 0, scratch); }) ==
          "sampling: found logit 2 to be -inf, expected a finite number");
}

}  // namespace
}  // namespace fathom
