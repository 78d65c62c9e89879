#include <doctest/doctest.h>

#include <fathom/ops/cross_entropy.hpp>

#include "numbers.hpp"

namespace fathom::test {

namespace {

constexpr double weight = 0.3, z_weight = 0.02;

std::vector<std::int32_t> targets_of(integer rows, integer vocabulary) {
    std::vector<std::int32_t> targets(static_cast<std::size_t>(rows));
    for (std::size_t r = 0; r < targets.size(); ++r)
        targets[r] = r % 5 == 3 ? ops::ignored_target
                                : static_cast<std::int32_t>((r * 31) % static_cast<std::size_t>(vocabulary));
    return targets;
}

template <class A> struct result {
    numbers<A> dlogits;
    std::vector<double> losses, z_losses;
};
template <class A> result<A> run(integer rows, integer vocabulary, int workers) {
    const auto targets = targets_of(rows, vocabulary);
    const std::vector<double> nothing(static_cast<std::size_t>(rows), 99);
    result<A> r{numbers<A>(rows, vocabulary, 1, 3, 2), nothing, nothing};
    pool p(workers);
    ops::cross_entropy(p.queue, r.dlogits.view(), targets.data(), weight, z_weight, r.losses.data(), r.z_losses.data());
    return r;
}

constexpr integer shapes[][2] = {{1, 1}, {0, 5}, {11, 7}, {23, 100}};

}  // namespace

TEST_CASE("cross-entropy equals its formula, its gradient equals central differences") {
    for (const auto& [rows, vocabulary] : shapes) {
        const auto targets = targets_of(rows, vocabulary);
        numbers<double> logits(rows, vocabulary, 1, 3), expected(rows, vocabulary), losses(rows, 2), seen(rows, 2);
        auto found = run<double>(rows, vocabulary, 2);
        for (integer r = 0; r < rows; ++r) {
            const auto target = targets[static_cast<std::size_t>(r)];
            const auto loss = [&](double by, double z_by) {
                double sum = 0;
                for (integer i = 0; i < vocabulary; ++i) sum += std::exp(logits(r, i));
                return target < 0 ? 0 : by * (std::log(sum) - logits(r, target)) + z_by * std::log(sum) * std::log(sum);
            };
            for (integer i = 0; i < vocabulary; ++i)
                expected.view()(r, i) = slope(&logits.view()(r, i), [&] { return loss(weight, z_weight); });
            losses.view()(r, 0) = loss(1, 0);
            losses.view()(r, 1) = loss(0, 1);
            seen.view()(r, 0) = found.losses[static_cast<std::size_t>(r)];
            seen.view()(r, 1) = found.z_losses[static_cast<std::size_t>(r)];
        }
        CHECK(distance(seen, losses) < 1e-13);
        CHECK(distance(found.dlogits, expected) < 1e-8);
    }
}

TEST_CASE_TEMPLATE("cross-entropy is as exact as its format and the same with any number of workers", A, double,
                   float) {
    for (const auto& [rows, vocabulary] : shapes) {
        auto found = run<A>(rows, vocabulary, 1);
        auto exact = run<double>(rows, vocabulary, 1);
        CHECK(distance(found.dlogits, exact.dlogits) < tolerance<A>);
        const auto targets = targets_of(rows, vocabulary);
        for (const int workers : {1, 2, 3}) {
            auto other = run<A>(rows, vocabulary, workers);
            CHECK(same_bits(found.dlogits.memory, other.dlogits.memory));
            CHECK(same_bits(found.losses, other.losses));

            numbers<A> logits(rows, vocabulary, 1, 3, 2);
            const auto before = logits.memory;
            std::vector<double> losses(found.losses.size(), 99), z_losses = losses;
            pool p(workers);
            const matrix<const A> read = logits.view();
            ops::cross_entropy_forward(p.queue, read, targets.data(), losses.data(), z_losses.data());
            CHECK(same_bits(losses, found.losses));
            CHECK(same_bits(z_losses, found.z_losses));
            CHECK(same_bits(logits.memory, before));
        }
        for (std::size_t r = 0; r < targets.size(); ++r)
            if (targets[r] < 0) {
                CHECK(found.losses[r] == 0);
                CHECK(found.z_losses[r] == 0);
                for (integer i = 0; i < vocabulary; ++i) CHECK(found.dlogits(static_cast<integer>(r), i) == 0);
            }
    }
}

TEST_CASE_TEMPLATE("cross-entropy over slices of the vocabulary equals that over all of it", A, double, float) {
    constexpr integer rows = 11, share = 40;
    constexpr std::size_t slices = 3;
    const auto targets = targets_of(rows, slices * share);
    auto exact = run<double>(rows, slices * share, 1);
    for (const double size : {3.0, 3000.0}) {
        if (size > 3) {  // logits that would overflow without their maximum
            numbers<double> logits(rows, slices * share, 1, size, 2);
            exact.dlogits = logits;
            pool p(1);
            ops::cross_entropy(p.queue, exact.dlogits.view(), targets.data(), weight, z_weight, exact.losses.data(),
                               exact.z_losses.data());
        }
        for (const int workers : {1, 3}) {
            pool p(workers);
            numbers<A> logits(rows, slices * share, 1, size, 2);
            std::vector<double> maxima(rows, -INFINITY), sums(2 * rows), losses(rows, 99), z_losses(rows, 99);
            std::vector<double> part(2 * rows, 99);
            const auto slice = [&](std::size_t s) {
                return logits.view().columns_at(static_cast<integer>(s) * share, share);
            };
            const auto place = [&](std::size_t s) {
                return ops::vocabulary_slice{static_cast<integer>(s) * share, slices * share};
            };
            for (std::size_t s = 0; s < slices; ++s) {
                ops::cross_entropy_maxima(p.queue, slice(s), part.data());
                for (std::size_t r = 0; r < maxima.size(); ++r) maxima[r] = std::max(maxima[r], part[r]);
            }
            for (std::size_t s = 0; s < slices; ++s) {
                ops::cross_entropy_exponentials(p.queue, slice(s), targets.data(), place(s), maxima.data(),
                                                part.data());
                for (std::size_t r = 0; r < sums.size(); ++r) sums[r] += part[r];
            }
            ops::cross_entropy_losses(p.queue, rows, targets.data(), maxima.data(), sums.data(), losses.data(),
                                      z_losses.data());
            for (std::size_t s = 0; s < slices; ++s)
                ops::cross_entropy_gradient(p.queue, slice(s), targets.data(), place(s), weight, z_weight,
                                            maxima.data(), sums.data());
            CHECK(distance(logits, exact.dlogits) < tolerance<A>);
            for (std::size_t r = 0; r < losses.size(); ++r) {
                CHECK(losses[r] == doctest::Approx(exact.losses[r]).epsilon(tolerance<A>));
                CHECK(z_losses[r] == doctest::Approx(exact.z_losses[r]).epsilon(tolerance<A>));
                if (targets[r] < 0) CHECK(losses[r] == 0);
            }
        }
    }
}

TEST_CASE("cross-entropy stays exact for large logits and says NaN for NaN") {
    pool p(1);
    for (const float size : {1e4F, -1e4F, 3e38F}) {
        float logits[] = {size, size, size, -INFINITY};
        const std::int32_t target = 1;
        double loss = 0;
        ops::cross_entropy(p.queue, matrix<float>{logits, 1, 4}, &target, 1, 0, &loss);
        CHECK(loss == doctest::Approx(std::log(3)).epsilon(1e-7));
        CHECK(logits[1] == doctest::Approx(-2.0 / 3));
        CHECK(logits[2] == doctest::Approx(1.0 / 3));
        CHECK(logits[3] == 0);
    }
    for (const float bad : {NAN, INFINITY}) {
        float logits[] = {0, 1, bad, 2};
        const std::int32_t target = 1;
        double loss = 0;
        ops::cross_entropy(p.queue, matrix<float>{logits, 1, 4}, &target, 1, 0, &loss);
        CHECK(std::isnan(loss));
    }
}

TEST_CASE("a target outside the vocabulary is refused with its row") {
    pool p(2);
    for (const std::int32_t bad : {4, -1}) {
        numbers<float> logits(3, 4, 1);
        const std::int32_t targets[] = {0, 3, bad};
        double losses[3];
        const std::string expected =
            text_of("cross_entropy: row 2 has the target ", bad, ", expected an id in [0, 4) or -100 to ignore it");
        CHECK_THROWS_WITH_AS(ops::cross_entropy(p.queue, logits.view(), targets, 1, 0, losses), expected.c_str(),
                             error);
        CHECK_THROWS_WITH_AS(ops::cross_entropy_forward(p.queue, logits.view(), targets, losses), expected.c_str(),
                             error);
        double sums[6];
        CHECK_THROWS_WITH_AS(ops::cross_entropy_exponentials(p.queue, logits.view().columns_at(2, 2), targets,
                                                             ops::vocabulary_slice{2, 4}, losses, sums),
                             expected.c_str(), error);
    }
}

}  // namespace fathom::test
