// Learning rates over a run: every published schedule is a warm-up and a few stretches between points, so one small
// value describes them all.
#pragma once

#include <cmath>
#include <cstddef>
#include <fathom/core/bytes.hpp>
#include <fathom/core/error.hpp>
#include <initializer_list>
#include <numbers>

namespace fathom::optim {

/// How the rate moves over a stretch: at its end value throughout; or after a share t of the stretch linear t,
/// cosine (1 - cos pi t) / 2, one_minus_sqrt sqrt(t) of the way from where the stretch before ended.
enum class curve : unsigned char { constant, linear, cosine, one_minus_sqrt };

/// A part of a run: it lasts until that share of the run (warm-up included) and ends at factor * peak.
struct stretch {
    curve shape = curve::constant;
    double until = 1;
    double factor = 1;
};

/// Stretches one after the other, at most `most` of them.
struct stretches {
    static constexpr std::size_t most = 8;
    stretch items[most]{};
    std::size_t count = 0;

    constexpr stretches() = default;
    constexpr stretches(std::initializer_list<stretch> list) {
        for (const stretch& item : list) push(item);
    }
    constexpr void push(const stretch& item) {
        if (count == most) fail("learning rate: found more than ", most, " stretches, expected at most ", most);
        items[count++] = item;
    }
    [[nodiscard]] constexpr const stretch* begin() const { return items; }
    [[nodiscard]] constexpr const stretch* end() const { return items + count; }
};

/// A linear warm-up from zero to the peak, then the stretches; after the last one the rate stays. A run is counted in
/// steps, or in tokens if both counts are tokens.
struct learning_rate_schedule {
    double peak = 0;
    integer warmup_steps = 0;
    integer training_steps = 1;
    stretches shape = {stretch{}};

    /// The rate of a step, counted from 0: in a warm-up of W steps, step 0 has peak / W and step W - 1 the peak.
    [[nodiscard]] double at(integer step) const { return after(step + 1); }
    /// The rate of the step that ends when `done` >= 1 steps (or tokens) are done.
    [[nodiscard]] double after(integer done) const {
        if (done <= warmup_steps)
            return peak * (static_cast<double>(done) / static_cast<double>(warmup_steps > 0 ? warmup_steps : 1));
        double rate = peak;
        integer start = warmup_steps;
        for (const stretch& part : shape) {
            const double target = part.factor * peak;
            const integer end = end_of(part);
            if (done <= end) {
                if (part.shape == curve::constant) return target;
                const double t = static_cast<double>(done - start) / static_cast<double>(end - start);
                return rate + (target - rate) * way(part.shape, t);
            }
            rate = target;
            start = end;
        }
        return rate;
    }
    /// Errors: a rate, count, share or factor that means nothing; names what was found and what was expected.
    void check() const {
        const auto number = [](const char* what, double value) {
            if (!(value >= 0 && value <= 1e6)) fail("learning rate: ", what, " is ", value, ", expected 0 to 1e6");
        };
        number("the peak", peak);
        if (training_steps < 1) fail("learning rate: training_steps is ", training_steps, ", expected at least 1");
        if (shape.count == 0) fail("learning rate: found no stretch, expected at least 1");
        double before = 0;
        for (const stretch& part : shape) {
            number("the factor of a stretch", part.factor);
            if (!(part.until >= before && part.until <= 1))
                fail("learning rate: a stretch lasts until ", part.until, " of the run, expected ", before, " to 1");
            before = part.until;
        }
        if (before != 1) fail("learning rate: the last stretch lasts until ", before, " of the run, expected 1");
        const integer first = end_of(shape.items[0]);
        if (warmup_steps < 0 || warmup_steps > first)
            fail("learning rate: warmup_steps is ", warmup_steps, ", expected 0 to ", first, ", where the ",
                 shape.count == 1 ? "run" : "first stretch", " ends");
    }

  private:
    [[nodiscard]] integer end_of(const stretch& part) const {
        return static_cast<integer>(std::llround(part.until * static_cast<double>(training_steps)));
    }
    static double way(curve how, double t) {
        if (how == curve::cosine) return (1 - std::cos(std::numbers::pi * t)) / 2;
        return how == curve::one_minus_sqrt ? std::sqrt(t) : t;
    }
};

}  // namespace fathom::optim
