#include <doctest/doctest.h>

#include <algorithm>
#include <fathom/ops/product.hpp>
#include <vector>

#include "numbers.hpp"

namespace fathom::test {

namespace {

template <class T> numbers<T> filled(integer rows, integer width, double value) {
    numbers<T> result(rows, width);
    for (auto& number : result.memory) number = static_cast<T>(static_cast<float>(value));
    return result;
}

struct shape {
    integer m, n, k;
};
constexpr shape shapes[] = {{1, 1, 1}, {0, 3, 4}, {5, 7, 0}, {1, 300, 70}, {37, 19, 611}, {530, 270, 130}};
constexpr integer gap = 3;

}  // namespace

TEST_CASE_TEMPLATE("products: they and their gradients equal three loops, with any number of workers", T, double, float,
                   bf16) {
    using A = accumulator_t<T>;
    for (const auto& [m, n, k] : shapes) {
        CAPTURE(m);
        numbers<T> x(m, k, 1, 1, gap), w(n, k, 2, 1, gap), dy(m, n, 3, 1, gap);
        auto y = filled<double>(m, n, 0), dx = filled<double>(m, k, 0), dw = filled<double>(n, k, 0.5),
             db = filled<double>(1, n, 0.25);
        for (integer i = 0; i < m; ++i)
            for (integer j = 0; j < n; ++j) {
                db.view()(0, j) += dy(i, j);
                for (integer l = 0; l < k; ++l) {
                    y.view()(i, j) += x(i, l) * w(j, l);
                    dx.view()(i, l) += dy(i, j) * w(j, l);
                    dw.view()(j, l) += dy(i, j) * x(i, l);
                }
            }
        std::vector<T> first;
        std::vector<A> first_weight;
        for (int workers : {1, 2, 3}) {
            pool on(workers, ops::product_scratch<T>());
            numbers<T> found(m, n, 9, 1, gap), input(m, k, 9, 1, gap);
            numbers<A> exact(m, n, 9), weight = filled<A>(n, k, 0.5), bias = filled<A>(1, n, 0.25);
            ops::product(on.queue, found.view(), x.view(), w.view());
            ops::product(on.queue, exact.view(), x.view(), w.view());
            ops::product_input(on.queue, input.view(), dy.view(), w.view());
            ops::product_weight(on.queue, weight.view(), dy.view(), x.view());
            ops::bias_weight(on.queue, bias.view(), dy.view());
            CHECK(distance(found, y) < tolerance<T>);
            CHECK(distance(exact, y) < tolerance<A>);
            CHECK(distance(input, dx) < tolerance<T>);
            CHECK(distance(weight, dw) < tolerance<A>);
            CHECK(distance(bias, db) < tolerance<A>);
            if (workers == 1) first = found.memory, first_weight = weight.memory;
            CHECK(same_bits(found.memory, first));
            CHECK(same_bits(weight.memory, first_weight));

            auto twice = filled<double>(m, n, 0), twice_input = filled<double>(m, k, 0);
            for (integer i = 0; i < m; ++i) {
                for (integer j = 0; j < n; ++j) twice.view()(i, j) = 2 * y(i, j);
                for (integer l = 0; l < k; ++l) twice_input.view()(i, l) = 2 * dx(i, l);
            }
            ops::product(on.queue, found.view(), x.view(), w.view(), true);
            ops::product_input(on.queue, input.view(), dy.view(), w.view(), true);
            CHECK(distance(found, twice) < tolerance<T>);
            CHECK(distance(input, twice_input) < tolerance<T>);
        }
    }
}

TEST_CASE("products: a gradient in float meets weights in bf16") {
    pool on(2, ops::product_scratch<bf16>());
    numbers<float> dy(30, 20, 1);
    numbers<bf16> w(20, 50, 2), dx(30, 50);
    numbers<double> expected(30, 50);
    for (integer i = 0; i < 30; ++i)
        for (integer l = 0; l < 50; ++l)
            for (integer j = 0; j < 20; ++j) expected.view()(i, l) += dy(i, j) * w(j, l);
    ops::product_input(on.queue, dx.view(), dy.view(), w.view());
    CHECK(distance(dx, expected) < tolerance<bf16>);
}

TEST_CASE("products: the bias is added to every row") {
    pool on(2);
    numbers<float> y(130, 3), bias(1, 3, 5);
    ops::add_bias(on.queue, y.view(), bias.view());
    for (integer r = 0; r < 130; ++r)
        for (integer c = 0; c < 3; ++c) CHECK(y(r, c) == bias(0, c));
}

TEST_CASE("products: in double the same bits whole and in pieces") {
    pool on(1, ops::product_scratch<double>());
    numbers<double> x(67, 300, 1), w(45, 300, 2), whole(67, 45), parts(67, 45);
    for (auto* of : {&x, &w})
        for (auto& number : of->memory) number *= 1.1;  // no sum is exact
    ops::product(on.queue, whole.view(), x.view(), w.view());
    ops::product(on.queue, parts.view(), x.view().columns_at(0, 133), w.view().columns_at(0, 133));
    ops::product(on.queue, parts.view(), x.view().columns_at(133, 167), w.view().columns_at(133, 167), true);
    CHECK(same_bits(whole.memory, parts.memory));
}

TEST_CASE_TEMPLATE("grouped products: equal to one product a group, rows gathered or not", T, double, float, bf16) {
    using A = accumulator_t<T>;
    constexpr integer groups = 4, N = 70, K = 33, tokens = 90, R = 340;
    const integer offsets[] = {0, 1, 1, 300, R};  // one row, none, many, some
    std::vector<std::int32_t> rows(R);
    for (integer r = 0; r < R; ++r)
        rows[static_cast<std::size_t>(r)] = static_cast<std::int32_t>((r * 37 + 5) % tokens);
    numbers<T> x(tokens, K, 1), w(groups * N, K, 2), dy(tokens, N, 3), sorted_x(R, K), sorted_dy(R, N);
    for (integer r = 0; r < R; ++r) {
        std::copy_n(x.view().row(rows[static_cast<std::size_t>(r)]), K, sorted_x.view().row(r));
        std::copy_n(dy.view().row(rows[static_cast<std::size_t>(r)]), N, sorted_dy.view().row(r));
    }
    numbers<T> y(R, N), dx(R, K), dx_twice(R, K);
    numbers<A> dw(groups * N, K, 7);
    pool one(1, ops::product_scratch<T>());
    for (integer g = 0; g < groups; ++g) {
        const integer first = offsets[g], count = offsets[g + 1] - first;
        const auto x_g = sorted_x.view().rows_at(first, count);
        const auto dy_g = sorted_dy.view().rows_at(first, count);
        const auto w_g = w.view().rows_at(g * N, N);
        ops::product(one.queue, y.view().rows_at(first, count), x_g, w_g);
        ops::product_input(one.queue, dx.view().rows_at(first, count), dy_g, w_g);
        ops::product_input(one.queue, dx_twice.view().rows_at(first, count), dy_g, w_g);
        ops::product_input(one.queue, dx_twice.view().rows_at(first, count), dy_g, w_g, true);
        ops::product_weight(one.queue, dw.view().rows_at(g * N, N), dy_g, x_g);
    }
    for (int workers : {1, 3})
        for (const bool gather : {false, true}) {
            pool on(workers, ops::product_scratch<T>());
            numbers<T> found(R, N, 9), input(R, K, 9);
            numbers<A> weight(groups * N, K, 7);
            const auto& from_x = gather ? x : sorted_x;
            const auto& from_dy = gather ? dy : sorted_dy;
            const matrix<const T> x_view{from_x.memory.data(), from_x.rows, K};
            const matrix<const T> dy_view{from_dy.memory.data(), from_dy.rows, N};
            const std::int32_t* order = gather ? rows.data() : nullptr;
            ops::grouped_product(on.queue, found.view(), x_view, w.view(), N, offsets, groups, order);
            ops::grouped_product_input(on.queue, input.view(), dy_view, w.view(), N, offsets, groups, false, order);
            ops::grouped_product_weight(on.queue, weight.view(), dy_view, x_view, N, offsets, groups, order, order);
            CHECK(distance(found, y) < tolerance<T>);
            CHECK(distance(input, dx) < tolerance<T>);
            CHECK(distance(weight, dw) < tolerance<A>);
            ops::grouped_product_input(on.queue, input.view(), dy_view, w.view(), N, offsets, groups, true, order);
            CHECK(distance(input, dx_twice) < tolerance<T>);
        }
}

TEST_CASE("products: shapes that do not fit are refused") {
    pool on(1);
    numbers<float> x(4, 3), w(5, 2), y(4, 5);
    CHECK_THROWS_WITH_AS(ops::product(on.queue, y.view(), x.view(), w.view()),
                         "product: found result 4 x 5, operands 4 x 3 and 5 x 2, expected shapes that fit each other",
                         error);
}

}  // namespace fathom::test
