#include <doctest/doctest.h>

#include <cstdint>
#include <fathom/ops/product.hpp>
#include <fathom/ops/product/kernel.hpp>
#include <vector>

#include "../unit/ops/numbers.hpp"
#include "launch.hpp"

namespace fathom::test {

TEST_CASE_TEMPLATE("the plain kernel of products equals the host", T, double, float, bf16) {
    using A = accumulator_t<T>;
    pool p(1, ops::product_scratch<T>());
    struct shape {
        integer rows, in, out;
    };
    for (const auto& [rows, in, out] : {shape{1, 1, 1}, {17, 33, 5}, {40, 16, 48}, {0, 7, 3}}) {
        numbers<T> x(rows, in, 1, 1, 3), w(out, in, 2, 1, 1), dy(rows, out, 3, 1, 2);
        const matrix<const T> from_x = x.view(), from_w = w.view(), from_dy = dy.view();
        for (const bool accumulate : {false, true}) {
            numbers<T> y(rows, out, 4), found_y = y, dx(rows, in, 5), found_dx = dx;
            numbers<A> logits(rows, out, 6), found_logits = logits;
            using plain = ops::product_kernel<T, T, T>;
            using wide = ops::product_kernel<A, T, T>;
            ops::product(p.queue, y.view(), from_x, from_w, accumulate);
            launch(plain{false, true}, plain::blocks(rows, out), found_y.view(), accumulate, from_x, from_w);
            CHECK(distance(found_y, y) < tolerance<T>);
            ops::product(p.queue, logits.view(), from_x, from_w, accumulate);
            launch(wide{false, true}, wide::blocks(rows, out), found_logits.view(), accumulate, from_x, from_w);
            CHECK(distance(found_logits, logits) < tolerance<A>);
            ops::product_input(p.queue, dx.view(), from_dy, from_w, accumulate);
            launch(plain{false, false}, plain::blocks(rows, in), found_dx.view(), accumulate, from_dy, from_w);
            CHECK(distance(found_dx, dx) < tolerance<T>);
        }
        numbers<A> dw(out, in, 7), found_dw = dw;
        using weight = ops::product_kernel<A, T, T>;
        ops::product_weight(p.queue, dw.view(), from_dy, from_x);
        launch(weight{true, false}, weight::blocks(out, in), found_dw.view(), true, from_dy, from_x);
        CHECK(distance(found_dw, dw) < tolerance<A>);
    }
}

TEST_CASE_TEMPLATE("the plain kernels of grouped products equal the host", T, double, float, bf16) {
    using A = accumulator_t<T>;
    pool p(1, ops::product_scratch<T>());
    // An empty group at the start, in between and at the end, one of a whole tile, and a ragged one.
    const std::vector<integer> offsets{0, 0, 16, 16, 37, 40, 40};
    constexpr integer groups = 6, count = 40, tokens = 9, in = 21, each = 19;
    std::vector<std::int32_t> rows;
    for (integer r = 0; r < count; ++r) rows.push_back(static_cast<std::int32_t>(r * 5 % tokens));
    const auto of = vector_view(offsets.data(), groups + 1);
    const auto gathered = vector_view<const std::int32_t>(rows.data(), count);
    const matrix<const std::int32_t> sorted;
    numbers<T> x(tokens, in, 1), w(groups * each, in, 2), dy(count, each, 3);
    const matrix<const T> from_x = x.view(), from_w = w.view(), from_dy = dy.view();
    using product = ops::grouped_product_kernel<T, T, T>;
    using weight = ops::grouped_product_weight_kernel<T, T>;

    numbers<T> y(count, each), found_y = y;
    ops::grouped_product(p.queue, y.view(), from_x, from_w, each, offsets.data(), groups, rows.data());
    launch(product{true}, product::blocks(count, each, groups), found_y.view(), false, from_x, from_w, of, gathered);
    CHECK(distance(found_y, y) < tolerance<T>);
    for (const bool accumulate : {false, true}) {
        numbers<T> dx(count, in, 4), found_dx = dx;
        ops::grouped_product_input(p.queue, dx.view(), from_dy, from_w, each, offsets.data(), groups, accumulate);
        launch(product{false}, product::blocks(count, in, groups), found_dx.view(), accumulate, from_dy, from_w, of,
               sorted);
        CHECK(distance(found_dx, dx) < tolerance<T>);
    }
    numbers<A> dw(groups * each, in, 5), found_dw = dw;
    ops::grouped_product_weight(p.queue, dw.view(), from_dy, from_x, each, offsets.data(), groups, rows.data());
    launch(weight{}, weight::blocks(dw.rows, in, groups), found_dw.view(), from_dy, from_x, of, sorted, gathered);
    CHECK(distance(found_dw, dw) < tolerance<A>);
}

}  // namespace fathom::test
