// A step's numbers do not depend on how it is cut, on how many workers there are, or on when it runs.
#include <doctest/doctest.h>

#include "described_models.hpp"
#include "drawn_batch.hpp"
#include "oracle.hpp"
#include "reference_models.hpp"

namespace fathom::parity_test {

namespace {

constexpr train::step_settings settings{.learning_rate = 1e-3, .balance_alpha = 0.05, .z_loss = 0.01};
const models::model_config& config = described::v3_all::config();

template <class T> std::unique_ptr<running_model<T>> loaded(const setup& how) {
    auto model = run_model<T>(config, how);
    model->load(parity::path("reference/v3_all"));
    return model;
}

/// Gradients of both, tensor by tensor.
void check_close(running_model<double>& found, running_model<double>& expected, double bound) {
    const auto a = found.gradients(), b = expected.gradients();
    REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
        INFO(a[i].name);
        CHECK(parity::distance<double>(a[i].numbers, {b[i].numbers.begin(), b[i].numbers.end()}) <= bound);
    }
    CHECK(found.loads() == expected.loads());
}
void check_close(const train::step_result& found, const train::step_result& expected, double bound) {
    CHECK(found.loss == doctest::Approx(expected.loss).epsilon(bound));
    CHECK(found.cross_entropy == doctest::Approx(expected.cross_entropy).epsilon(bound));
    CHECK(found.mtp_loss == doctest::Approx(expected.mtp_loss).epsilon(bound));
    CHECK(found.balance_loss == doctest::Approx(expected.balance_loss).epsilon(bound));
    CHECK(found.z_loss == doctest::Approx(expected.z_loss).epsilon(bound));
    CHECK(found.targets == expected.targets);
    CHECK(found.tokens == expected.tokens);
}

}  // namespace

TEST_CASE("a batch in micro-batches of 1, or of 3 with a smaller last one, equals the whole") {
    const drawn_batch batch{4, 12, config.vocab_size, 3};
    const auto whole = loaded<double>({.batch = {4, 12}});
    const auto seen = whole->accumulate(batch.view(), settings);
    CHECK(seen.targets < 4 * 11);  // some are ignored
    for (const integer most : {1, 3}) {
        CAPTURE(most);
        const auto cut = loaded<double>({.batch = {most, 12}});
        for (int again = 0; again < 2; ++again) {  // the second time starts from the shape of the last micro-batch
            check_close(cut->accumulate(batch.view(), settings), seen, 1e-12);
            check_close(*cut, *whole, 1e-12);
        }
    }
}

TEST_CASE("sequences shorter than the bound, and fewer, give the bits that their own bound gives") {
    const drawn_batch batch{3, 9, config.vocab_size, 4}, longer{5, 16, config.vocab_size, 6};
    const auto exact = loaded<float>({.batch = {3, 9}}), roomy = loaded<float>({.batch = {5, 16}});
    roomy->accumulate(longer.view(), settings);  // so that what was there before is another shape's
    const auto expected = exact->accumulate(batch.view(), settings), found = roomy->accumulate(batch.view(), settings);
    CHECK(found.loss == expected.loss);
    CHECK(same_bits(flattened(roomy->gradients()), flattened(exact->gradients())));
    CHECK(roomy->evaluate(batch.view(), settings).loss == exact->evaluate(batch.view(), settings).loss);
}

TEST_CASE("one, two and three workers give the same bits") {
    const drawn_batch batch{4, 16, config.vocab_size, 7};
    std::vector<float> weights;
    double loss = 0;
    for (const integer workers : {1, 2, 3}) {
        CAPTURE(workers);
        const auto model = loaded<float>({.batch = {2, 16}, .workers = workers});
        for (int step = 0; step < 2; ++step) model->step(batch.view(), settings);
        const double now = model->evaluate(batch.view(), settings).loss;
        if (workers > 1) {
            CHECK(now == loss);
            CHECK(same_bits(flattened(model->weights()), weights));
        }
        loss = now;
        weights = flattened(model->weights());
    }
}

TEST_CASE("two runs from one seed are the same bits, another seed is another run") {
    const drawn_batch batch{4, 16, config.vocab_size, 8};
    const auto run = [&](std::uint64_t seed) {
        const auto model = run_model<float>(config, {.batch = {4, 16}});
        model->initialise(seed);
        for (int step = 0; step < 3; ++step) model->step(batch.view(), settings);
        return flattened(model->weights());
    };
    const auto first = run(11);
    CHECK(same_bits(run(11), first));
    CHECK(!same_bits(run(12), first));
}

TEST_CASE("evaluation gives the losses of a step and leaves weights and gradients alone") {
    const drawn_batch batch{4, 12, config.vocab_size, 9};
    const auto model = loaded<double>({.batch = {3, 12}});
    const auto trained = model->accumulate(batch.view(), settings);
    const auto gradients = flattened(model->gradients()), weights = flattened(model->weights());
    const auto seen = model->evaluate(batch.view(), settings);
    CHECK(seen.cross_entropy == trained.cross_entropy);
    CHECK(seen.mtp_loss == trained.mtp_loss);
    CHECK(seen.z_loss == trained.z_loss);
    CHECK(seen.balance_loss == 0);
    CHECK(same_bits(flattened(model->gradients()), gradients));
    CHECK(same_bits(flattened(model->weights()), weights));
}

}  // namespace fathom::parity_test
