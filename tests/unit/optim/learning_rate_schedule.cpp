#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <fathom/core/json.hpp>
#include <fathom/optim.hpp>
#include <string>

namespace fathom::test {

using optim::curve;
using optim::learning_rate_schedule;
namespace schedules = optim::schedules;

namespace {

/// A run of 100 steps with a peak of 1 and a warm-up of 10.
learning_rate_schedule run_of(optim::stretches shape) { return {1, 10, 100, shape}; }

std::string complaint(const learning_rate_schedule& schedule) {
    try {
        schedule.check();
    } catch (const error& e) {
        return e.what();
    }
    return "none";
}

}  // namespace

TEST_CASE("every schedule warms up in a straight line to the peak") {
    for (const auto& [word, shape] : schedules::names) {
        CAPTURE(word);
        const auto run = run_of(shape);
        run.check();
        CHECK(run.at(0) == doctest::Approx(0.1));
        CHECK(run.at(4) == doctest::Approx(0.5));
        CHECK(run.at(9) == 1);
        CHECK(run.at(1000) == doctest::Approx(run.at(99)));
    }
}

TEST_CASE("points of the published schedules, by hand") {
    CHECK(run_of(schedules::constant).at(99) == 1);
    CHECK(run_of(schedules::cosine).at(54) == doctest::Approx(0.55));  // half of the way from 1 to 0.1
    CHECK(run_of(schedules::cosine).at(99) == doctest::Approx(0.1));
    CHECK(run_of(schedules::v2).at(59) == 1);
    CHECK(run_of(schedules::v2).at(60) == doctest::Approx(0.316));
    CHECK(run_of(schedules::v2).at(90) == doctest::Approx(0.099856));
    CHECK(run_of(schedules::moe).at(79) == 1);
    CHECK(run_of(schedules::moe).at(80) == doctest::Approx(0.316));
    CHECK(run_of(schedules::llm).at(90) == doctest::Approx(0.1));
    CHECK(run_of(schedules::wsd).at(79) == 1);
    CHECK(run_of(schedules::wsd).at(84) == doctest::Approx(0.5));  // a quarter of the decay: 1 - sqrt(1/4)
    CHECK(run_of(schedules::wsd).at(99) == doctest::Approx(0));

    // DeepSeek-V3 in units of a billion tokens: 10T constant, 4.3T cosine, 333B, 167B.
    const learning_rate_schedule v3{2.2e-4, 0, 14'800, schedules::v3};
    v3.check();
    CHECK(v3.after(10'000) == 2.2e-4);
    CHECK(v3.after(12'150) == doctest::Approx((2.2e-4 + 2.2e-5) / 2));
    CHECK(v3.after(14'300) == doctest::Approx(2.2e-5));
    CHECK(v3.after(14'633) == doctest::Approx(2.2e-5));
    CHECK(v3.after(14'634) == doctest::Approx(7.3e-6));
}

TEST_CASE("schedules equal the stored references at every stored step") {
    const char* root = std::getenv("FATHOM_SOURCE_ROOT");
    const auto file = json::parse_file(text_of(root ? root : ".", "/tests/reference/schedules/schedules.json"));
    CHECK(file.at("cases").size() >= 8);
    for (const auto& item : file.at("cases").items()) {
        CAPTURE(item.at("name").as_string());
        const auto& phases = item.at("phases").items();
        learning_rate_schedule schedule{phases[0].at("to").as_number(), phases[0].at("steps").as_int(), 0, {}};
        for (const auto& phase : phases) schedule.training_steps += phase.at("steps").as_int();
        integer done = schedule.warmup_steps;
        for (std::size_t i = 1; i < phases.size(); ++i) {
            done += phases[i].at("steps").as_int();
            const double until = static_cast<double>(done) / static_cast<double>(schedule.training_steps);
            const auto shape = optim::stretches_of(phases[i].at("shape").as_string() + ":1:1").items[0].shape;
            schedule.shape.push({shape, until, phases[i].at("to").as_number() / schedule.peak});
        }
        schedule.check();
        for (const auto& value : item.at("values").items())
            CHECK(schedule.at(value.items()[0].as_int()) ==
                  doctest::Approx(value.items()[1].as_number()).epsilon(1e-12));
    }
}

TEST_CASE("a schedule can be given as text") {
    CHECK(optim::stretches_of("v3").count == 4);
    const auto shape = optim::stretches_of("constant:0.8:1,linear:0.9:0.5,one_minus_sqrt:1:0");
    REQUIRE(shape.count == 3);
    CHECK(shape.items[1].shape == curve::linear);
    CHECK(shape.items[1].until == 0.9);
    CHECK(shape.items[1].factor == 0.5);
    CHECK(shape.items[2].shape == curve::one_minus_sqrt);
    for (const char* bad : {"", "v9", "linear", "linear:1", "linear:1:", "linear:x:1", "linear:1:1:1", "linear:1:1x",
                            "linear:1:1,,linear:1:1", "round:1:1"}) {
        CAPTURE(bad);
        CHECK_THROWS_AS(optim::stretches_of(bad), error);
    }
    CHECK_THROWS_WITH_AS(
        optim::stretches_of("constant:0.5:1,line:1:0"),
        "learning rate: found \"line:1:0\" in the schedule \"constant:0.5:1,line:1:0\", expected v3, v2, moe, "
        "llm, wsd, cosine, constant, or SHAPE:UNTIL:FACTOR with a shape of constant, linear, cosine, "
        "one_minus_sqrt",
        error);
    CHECK_THROWS_WITH_AS(
        optim::stretches_of(
            "linear:0:1,linear:0:1,linear:0:1,linear:0:1,linear:0:1,linear:0:1,linear:0:1,linear:0:1,linear:1:1"),
        "learning rate: found more than 8 stretches, expected at most 8", error);
}

TEST_CASE("schedules that mean nothing are refused with what was found") {
    CHECK(complaint(run_of(schedules::v3)) == "none");
    CHECK(complaint({-1, 0, 10, schedules::v3}) == "learning rate: the peak is -1, expected 0 to 1e6");
    CHECK(complaint({NAN, 0, 10, schedules::v3}) == "learning rate: the peak is nan, expected 0 to 1e6");
    CHECK(complaint({1, 0, 0, schedules::v3}) == "learning rate: training_steps is 0, expected at least 1");
    CHECK(complaint({1, -1, 10, schedules::cosine}) ==
          "learning rate: warmup_steps is -1, expected 0 to 10, where the run ends");
    CHECK(complaint({1, 11, 10, schedules::cosine}) ==
          "learning rate: warmup_steps is 11, expected 0 to 10, where the run ends");
    CHECK(complaint({1, 9, 10, schedules::v2}) ==
          "learning rate: warmup_steps is 9, expected 0 to 6, where the first stretch ends");
    CHECK(complaint({1, 0, 10, {}}) == "learning rate: found no stretch, expected at least 1");
    CHECK(complaint({1, 0, 10, {{curve::constant, 0.5, 1}}}) ==
          "learning rate: the last stretch lasts until 0.5 of the run, expected 1");
    CHECK(complaint({1, 0, 10, {{curve::constant, 0.5, 1}, {curve::constant, 0.4, 1}}}) ==
          "learning rate: a stretch lasts until 0.4 of the run, expected 0.5 to 1");
    CHECK(complaint({1, 0, 10, {{curve::constant, 1, -2}}}) ==
          "learning rate: the factor of a stretch is -2, expected 0 to 1e6");
}

}  // namespace fathom::test
