#include <doctest/doctest.h>

#include <cmath>
#include <fathom/ops/swiglu.hpp>

#include "numbers.hpp"

namespace fathom::test {

namespace {

/// silu(gate) * up * scale by its definition.
double definition(double gate, double up, double scale) { return gate / (1 + std::exp(-gate)) * up * scale; }

}  // namespace

TEST_CASE_TEMPLATE("swiglu: equals its definition, with and without scales, at any width", T, double, float, bf16) {
    using A = accumulator_t<T>;
    for (const integer width : {1, 64, 77, 300})
        for (const bool scaled : {false, true}) {
            constexpr integer rows = 70;
            numbers<T> gate_up(rows, 2 * width, 1, 3, 5), act(rows, width, 9, 1, 2);
            numbers<A> scale(1, rows, 2);
            numbers<double> expected(rows, width);
            for (integer r = 0; r < rows; ++r)
                for (integer c = 0; c < width; ++c)
                    expected.view()(r, c) = definition(gate_up(r, c), gate_up(r, width + c), scaled ? scale(0, r) : 1);
            pool on(2);
            ops::swiglu(on.queue, act.view(), gate_up.view(), scaled ? scale.data() : nullptr);
            CHECK(distance(act, expected) < tolerance<T>);
        }
}

TEST_CASE("swiglu: gates of any size give finite results") {
    numbers<float> gate_up(1, 8), act(1, 4), dact(1, 4);
    const float gates[] = {-1e30f, -100, 100, 1e30f};
    for (integer c = 0; c < 4; ++c) gate_up.view()(0, c) = gates[c], gate_up.view()(0, 4 + c) = dact.view()(0, c) = 1;
    pool on(1);
    ops::swiglu(on.queue, act.view(), gate_up.view());
    ops::swiglu_backward(on.queue, gate_up.view(), dact.view(), gate_up.view());
    for (integer c = 0; c < 4; ++c) CHECK(act(0, c) == doctest::Approx(c < 2 ? 0.0 : static_cast<double>(gates[c])));
    for (integer c = 0; c < 4; ++c) CHECK(gate_up(0, c) == doctest::Approx(c < 2 ? 0 : 1));
}

TEST_CASE("swiglu: gradients equal central differences") {
    constexpr integer rows = 5, width = 67;
    numbers<double> gate_up(rows, 2 * width, 1), dact(rows, width, 2), scale(1, rows, 3), act(rows, width);
    numbers<double> gradient(rows, 2 * width, 9), gradient_scale(1, rows, 9), by_slope(rows, 2 * width),
        scale_slope(1, rows);
    pool on(2);
    ops::swiglu_backward(on.queue, gradient.view(), dact.view(), gate_up.view(), scale.data(), gradient_scale.data());
    const auto loss = [&] {
        ops::swiglu(on.queue, act.view(), gate_up.view(), scale.data());
        double sum = 0;
        for (std::size_t i = 0; i < act.memory.size(); ++i) sum += act.memory[i] * dact.memory[i];
        return sum;
    };
    for (std::size_t i = 0; i < gate_up.memory.size(); ++i) by_slope.memory[i] = slope(&gate_up.memory[i], loss);
    for (std::size_t i = 0; i < scale.memory.size(); ++i) scale_slope.memory[i] = slope(&scale.memory[i], loss);
    CHECK(distance(gradient, by_slope) < 1e-7);
    CHECK(distance(gradient_scale, scale_slope) < 1e-7);
}

TEST_CASE_TEMPLATE("swiglu: gradients equal those in double, in place too, with any number of workers", T, float,
                   bf16) {
    constexpr integer rows = 300, width = 150;
    numbers<double> exact_in(rows, 2 * width, 1), exact_dact(rows, width, 2), exact_scale(1, rows, 3);
    numbers<double> exact(rows, 2 * width), exact_dscale(1, rows);
    pool one(1);
    ops::swiglu_backward(one.queue, exact.view(), exact_dact.view(), exact_in.view(), exact_scale.data(),
                         exact_dscale.data());
    std::vector<T> first;
    for (const int workers : {1, 2, 3}) {
        pool on(workers);
        numbers<T> gate_up(rows, 2 * width, 1), dact(rows, width, 2), gradient(rows, 2 * width);
        numbers<float> scale(1, rows, 3), dscale(1, rows), dscale_in_place(1, rows);
        ops::swiglu_backward(on.queue, gradient.view(), dact.view(), gate_up.view(), scale.data(), dscale.data());
        ops::swiglu_backward(on.queue, gate_up.view(), dact.view(), gate_up.view(), scale.data(),
                             dscale_in_place.data());
        CHECK(distance(gradient, exact) < tolerance<T>);
        CHECK(distance(dscale, exact_dscale) < tolerance<float>);
        CHECK(same_bits(gradient.memory, gate_up.memory));
        CHECK(same_bits(dscale.memory, dscale_in_place.memory));
        if (workers == 1) first = gradient.memory;
        CHECK(same_bits(gradient.memory, first));
    }
}

}  // namespace fathom::test
