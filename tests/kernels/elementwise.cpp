#include <doctest/doctest.h>

#include <fathom/ops/elementwise.hpp>
#include <fathom/ops/elementwise/kernel.hpp>
#include <fathom/ops/product/bias.hpp>
#include <fathom/ops/product/bias_kernel.hpp>
#include <utility>

#include "../unit/ops/numbers.hpp"
#include "launch.hpp"

namespace fathom::test {

namespace {

constexpr std::pair<integer, integer> shapes[] = {{0, 5}, {1, 1}, {3, 67}, {70, 130}, {1, 4099}};

/// From From to To, in rows that follow each other and in rows with gaps.
template <class To, class From> void check_copies() {
    pool p(1);
    for (const auto& [rows, width] : shapes)
        for (const integer gap : {0, 3}) {
            numbers<From> x(rows, width, 1, 1, gap);
            numbers<To> host(rows, width, 2, 1, gap), found = host;
            using copy = ops::copy_kernel<To, From>;
            using add = ops::add_kernel<To, From>;
            const matrix<const From> from = x.view();
            ops::add(p.queue, host.view(), from);
            launch(add{}, add::blocks(rows, width), found.view(), from);
            CHECK(same_bits(found.memory, host.memory));
            ops::copy(p.queue, host.view(), from);
            launch(copy{}, copy::blocks(rows, width), found.view(), from);
            CHECK(same_bits(found.memory, host.memory));
        }
}

}  // namespace

TEST_CASE("the kernels that copy and add equal the host bit for bit") {
    check_copies<double, double>();
    check_copies<float, float>();
    check_copies<bf16, bf16>();
    check_copies<bf16, float>();
    check_copies<float, bf16>();
}

TEST_CASE_TEMPLATE("the kernels that scale, sum parts and add biases equal the host bit for bit", T, double, float,
                   bf16) {
    using A = accumulator_t<T>;
    using scale = ops::scale_kernel<T>;
    using sum_parts = ops::sum_parts_kernel<T>;
    using add_bias = ops::add_bias_kernel<T, T>;
    using bias_weight = ops::bias_weight_kernel<A, T>;
    pool p(1);
    for (const auto& [rows, width] : shapes) {
        numbers<T> y(rows, width, 1, 1, 2), found = y;
        ops::scale(p.queue, y.view(), 0.3);
        launch(scale{}, scale::blocks(rows, width), found.view(), 0.3);
        CHECK(same_bits(found.memory, y.memory));

        numbers<T> bias(1, width, 3);
        const matrix<const T> added = bias.view();
        ops::add_bias(p.queue, y.view(), added);
        launch(add_bias{}, add_bias::blocks(rows, width), found.view(), added);
        CHECK(same_bits(found.memory, y.memory));

        constexpr integer parts = 3;
        numbers<T> from(rows, parts * (width + 2), 4);
        for (const bool accumulate : {false, true}) {
            ops::sum_parts(p.queue, y.view(), accumulate, from.view(), parts, width + 2);
            launch(sum_parts{}, sum_parts::blocks(rows, width), found.view(), accumulate, matrix<const T>{from.view()},
                   parts, width + 2);
            CHECK(same_bits(found.memory, y.memory));
        }

        numbers<A> dbias(1, width, 5), found_dbias = dbias;
        const matrix<const T> dy = y.view();
        ops::bias_weight(p.queue, dbias.view(), dy);
        launch(bias_weight{}, bias_weight::blocks(width), found_dbias.view(), dy);
        CHECK(same_bits(found_dbias.memory, dbias.memory));
    }
}

}  // namespace fathom::test
