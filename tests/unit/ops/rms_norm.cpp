#include <doctest/doctest.h>

#include <fathom/ops/rms_norm.hpp>

#include "numbers.hpp"

namespace fathom::test {

namespace {

constexpr double epsilon = 1e-6;

template <class T> struct result {
    using A = accumulator_t<T>;
    numbers<T> y, dx;
    numbers<A> inverse, dgain, partials;
};

/// Forward and backward on inputs whose rows lie apart.
template <class T> result<T> run(integer rows, integer width, int workers, bool accumulate = true) {
    numbers<T> x(rows, width, 1, 2, 3), gain(1, width, 2), dy(rows, width, 3, 1, 1), dx(rows, width, 4);
    using A = accumulator_t<T>;
    result<T> r{numbers<T>(rows, width, 0, 1, 5), dx, numbers<A>(1, rows), numbers<A>(1, width, 5),
                numbers<A>(pieces(rows, ops::rms_norm_rows), width)};
    for (A& number : r.partials.memory) number = A{77};
    pool p(workers);
    ops::rms_norm(p.queue, r.y.view(), r.inverse.data(), x.view(), gain.data(), epsilon);
    ops::rms_norm_backward(p.queue, r.dx.view(), accumulate, r.dgain.data(), dy.view(), x.view(), r.inverse.data(),
                           gain.data(), r.partials.view());
    return r;
}

constexpr integer shapes[][2] = {{1, 1}, {0, 5}, {3, 1}, {37, 48}, {70, 133}};

}  // namespace

TEST_CASE("RMSNorm equals its formula, its gradients equal central differences") {
    for (const auto& [rows, width] : shapes) {
        numbers<double> x(rows, width, 1, 2), gain(1, width, 2), dy(rows, width, 3), y(rows, width);
        const auto loss = [&] {
            double sum = 0;
            for (integer r = 0; r < rows; ++r) {
                double squares = 0;
                for (integer i = 0; i < width; ++i) squares += x(r, i) * x(r, i);
                for (integer i = 0; i < width; ++i) {
                    y.view()(r, i) = gain(0, i) * x(r, i) / std::sqrt(squares / static_cast<double>(width) + epsilon);
                    sum += dy(r, i) * y(r, i);
                }
            }
            return sum;
        };
        auto found = run<double>(rows, width, 2);
        loss();
        CHECK(distance(found.y, y) < 1e-14);
        numbers<double> before(rows, width, 4), gain_before(1, width, 5), dx(rows, width), dgain(1, width);
        for (integer r = 0; r < rows; ++r)
            for (integer i = 0; i < width; ++i) dx.view()(r, i) = before(r, i) + slope(&x.view()(r, i), loss);
        for (integer i = 0; i < width; ++i) dgain.view()(0, i) = gain_before(0, i) + slope(&gain.view()(0, i), loss);
        CHECK(distance(found.dx, dx) < 1e-8);
        CHECK(distance(found.dgain, dgain) < 1e-8);
    }
}

TEST_CASE_TEMPLATE("RMSNorm is as exact as its format and the same with any number of workers", T, double, float,
                   bf16) {
    for (const auto& [rows, width] : shapes) {
        auto found = run<T>(rows, width, 1);
        auto exact = run<double>(rows, width, 1);
        CHECK(distance(found.y, exact.y) < tolerance<T>);
        CHECK(distance(found.dx, exact.dx) < tolerance<T>);
        CHECK(distance(found.dgain, exact.dgain) < tolerance<T>);
        for (const int workers : {2, 3}) {
            auto other = run<T>(rows, width, workers);
            CHECK(same_bits(found.y.memory, other.y.memory));
            CHECK(same_bits(found.dx.memory, other.dx.memory));
            CHECK(same_bits(found.dgain.memory, other.dgain.memory));
        }
    }
}

TEST_CASE("without accumulate, RMSNorm's backward does not read dx, which may be dy") {
    pool p(1);
    numbers<float> x(3, 8, 1), gain(1, 8, 2), dy(3, 8, 3), dx(3, 8), y(3, 8), dgain(1, 8), partials(1, 8),
        inverse(1, 3);
    ops::rms_norm(p.queue, y.view(), inverse.data(), x.view(), gain.data(), epsilon);
    for (float& number : dx.memory) number = NAN;
    const auto backward = [&](numbers<float>& to) {
        ops::rms_norm_backward(p.queue, to.view(), false, dgain.data(), dy.view(), x.view(), inverse.data(),
                               gain.data(), partials.view());
    };
    backward(dx);
    CHECK(std::isfinite(dx(2, 7)));
    backward(dy);
    CHECK(same_bits(dx.memory, dy.memory));
}

TEST_CASE("in bf16 the normalised value is rounded before the gain") {
    pool p(1);
    numbers<bf16> x(1, 64, 1, 3), gain(1, 64, 2), y(1, 64);
    float inverse = 0;
    ops::rms_norm(p.queue, y.view(), &inverse, x.view(), gain.data(), epsilon);
    int differ = 0;
    for (integer i = 0; i < 64; ++i) {
        const float normalised = static_cast<float>(x.view()(0, i)) * inverse;
        const float factor = gain.view()(0, i);
        CHECK(y.view()(0, i).bits == bf16{factor * static_cast<float>(bf16{normalised})}.bits);
        differ += bf16{factor * normalised}.bits != y.view()(0, i).bits;
    }
    CHECK(differ > 0);
}

}  // namespace fathom::test
