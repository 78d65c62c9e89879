#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fathom/core/random.hpp>
#include <fathom/ops/product.hpp>
#include <vector>

using namespace fathom;

namespace {

template <class T> struct held {
    std::vector<T> numbers;
    index rows, width;
    held(index r, index w, std::uint64_t seed = 0) : numbers(static_cast<std::size_t>(r * w)), rows(r), width(w) {
        for (std::size_t i = 0; seed != 0 && i < numbers.size(); ++i)
            numbers[i] = static_cast<T>(static_cast<float>(fathom::random{seed, 1}.normal(i)));
    }
    matrix<T> view() { return {numbers.data(), rows, width}; }
};

struct pool {
    host::workers threads;
    std::vector<std::byte> scratch;
    host::queue queue;
    template <class T>
    pool(int count, T)
        : threads(count),
          scratch(static_cast<std::size_t>(count * ops::product_scratch<T>()) + 64),
          queue(threads, scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64),
                ops::product_scratch<T>()) {}
};

/// The largest difference over the largest magnitude.
template <class T, class U> double distance(const std::vector<T>& found, const std::vector<U>& expected) {
    double apart = 0, largest = 1e-30;
    for (std::size_t i = 0; i < found.size(); ++i) {
        apart = std::max(apart, std::fabs(static_cast<double>(found[i]) - static_cast<double>(expected[i])));
        largest = std::max(largest, std::fabs(static_cast<double>(expected[i])));
    }
    return apart / largest;
}

template <class T> constexpr double tolerance = sizeof(T) == 8 ? 1e-13 : sizeof(T) == 4 ? 2e-6 : 5e-3;
template <class T> bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](T l, T r) {
               return static_cast<accumulator_t<T>>(l) == static_cast<accumulator_t<T>>(r);
           });
}

struct shape {
    index m, n, k;
};
constexpr shape shapes[] = {{1, 1, 1}, {0, 3, 4}, {5, 7, 0}, {1, 300, 70}, {37, 19, 611}, {530, 270, 130}};

}  // namespace

TEST_CASE_TEMPLATE("a product and its gradients equal three loops, with any number of workers", T, double, float,
                   bf16) {
    using A = accumulator_t<T>;
    for (const auto& s : shapes) {
        CAPTURE(s.m);
        held<T> x(s.m, s.k, 1), w(s.n, s.k, 2), dy(s.m, s.n, 3);
        std::vector<double> y(s.m * s.n), dx(s.m * s.k), dw(s.n * s.k, 0.5), db(s.n, 0.25);
        for (index i = 0; i < s.m; ++i)
            for (index j = 0; j < s.n; ++j) {
                const double g = static_cast<double>(dy.view()(i, j));
                db[j] += g;
                for (index l = 0; l < s.k; ++l) {
                    y[i * s.n + j] += static_cast<double>(x.view()(i, l)) * static_cast<double>(w.view()(j, l));
                    dx[i * s.k + l] += g * static_cast<double>(w.view()(j, l));
                    dw[j * s.k + l] += g * static_cast<double>(x.view()(i, l));
                }
            }
        std::vector<T> first;
        std::vector<A> first_weight;
        for (int workers : {1, 2, 3}) {
            pool on(workers, T{});
            held<T> found(s.m, s.n, 9), input(s.m, s.k, 9);
            held<A> weight(s.n, s.k), bias(1, s.n), exact(s.m, s.n, 9);
            std::fill(weight.numbers.begin(), weight.numbers.end(), A{0.5});
            std::fill(bias.numbers.begin(), bias.numbers.end(), A{0.25});
            ops::product(on.queue, found.view(), x.view(), w.view());
            ops::product(on.queue, exact.view(), x.view(), w.view());
            ops::product_input(on.queue, input.view(), dy.view(), w.view());
            ops::product_weight(on.queue, weight.view(), dy.view(), x.view());
            ops::bias_weight(on.queue, bias.view(), dy.view());
            CHECK(distance(found.numbers, y) < tolerance<T>);
            CHECK(distance(exact.numbers, y) < tolerance<A>);
            CHECK(distance(input.numbers, dx) < tolerance<T>);
            CHECK(distance(weight.numbers, dw) < tolerance<A>);
            CHECK(distance(bias.numbers, db) < tolerance<A>);
            if (workers == 1) first = found.numbers, first_weight = weight.numbers;
            CHECK(same_bits(found.numbers, first));
            CHECK(same_bits(weight.numbers, first_weight));

            const auto once = found.numbers;
            ops::product(on.queue, found.view(), x.view(), w.view(), true);
            for (auto& number : exact.numbers) number = 0;
            for (std::size_t i = 0; i < once.size(); ++i) exact.numbers[i] = A{2} * static_cast<A>(once[i]);
            CHECK(distance(found.numbers, exact.numbers) < tolerance<T>);
        }
    }
}

TEST_CASE("the bias is added to every row") {
    pool on(2, float{});
    held<float> y(130, 3), bias(1, 3, 5);
    ops::add_bias(on.queue, y.view(), bias.view());
    for (index r = 0; r < 130; ++r)
        for (index c = 0; c < 3; ++c) CHECK(y.view()(r, c) == bias.numbers[static_cast<std::size_t>(c)]);
}

TEST_CASE("a product in double is the same bits whole and in pieces") {
    pool on(1, double{});
    held<double> x(67, 300, 1), w(45, 300, 2), whole(67, 45), parts(67, 45);
    ops::product(on.queue, whole.view(), x.view(), w.view());
    for (index first : {0, 133})
        ops::product(on.queue, parts.view(), x.view().columns_at(first, first == 0 ? 133 : 167),
                     w.view().columns_at(first, first == 0 ? 133 : 167), first > 0);
    CHECK(same_bits(whole.numbers, parts.numbers));
}

TEST_CASE_TEMPLATE("grouped products equal one product a group, rows gathered or not", T, double, float, bf16) {
    using A = accumulator_t<T>;
    constexpr index groups = 4, N = 70, K = 33, tokens = 90, R = 340;
    const index offsets[] = {0, 1, 1, 300, R};  // one row, none, many, some
    std::vector<std::int32_t> rows(R);
    for (index r = 0; r < R; ++r) rows[static_cast<std::size_t>(r)] = static_cast<std::int32_t>((r * 37 + 5) % tokens);
    held<T> x(tokens, K, 1), w(groups * N, K, 2), dy(tokens, N, 3);
    held<T> xs(R, K), dys(R, N);
    for (index r = 0; r < R; ++r) {
        std::copy_n(x.view().row(rows[static_cast<std::size_t>(r)]), K, xs.view().row(r));
        std::copy_n(dy.view().row(rows[static_cast<std::size_t>(r)]), N, dys.view().row(r));
    }
    held<T> y(R, N), dx(R, K);
    held<A> dw(groups * N, K, 7);
    pool one(1, T{});
    for (index g = 0; g < groups; ++g) {
        const index first = offsets[g], count = offsets[g + 1] - first;
        ops::product(one.queue, y.view().rows_at(first, count), xs.view().rows_at(first, count),
                     w.view().rows_at(g * N, N));
        ops::product_input(one.queue, dx.view().rows_at(first, count), dys.view().rows_at(first, count),
                           w.view().rows_at(g * N, N));
        ops::product_weight(one.queue, dw.view().rows_at(g * N, N), dys.view().rows_at(first, count),
                            xs.view().rows_at(first, count));
    }
    for (int workers : {1, 3})
        for (bool gather : {false, true}) {
            pool on(workers, T{});
            held<T> found(R, N, 9), input(R, K, 9);
            held<A> weight(groups * N, K, 7);
            const std::int32_t* order = gather ? rows.data() : nullptr;
            ops::grouped_product(on.queue, found.view(), (gather ? x : xs).view(), w.view(), N, offsets, groups, order);
            ops::grouped_product_input(on.queue, input.view(), (gather ? dy : dys).view(), w.view(), N, offsets, groups,
                                       false, order);
            ops::grouped_product_weight(on.queue, weight.view(), (gather ? dy : dys).view(), (gather ? x : xs).view(),
                                        N, offsets, groups, order, order);
            CHECK(distance(found.numbers, y.numbers) < tolerance<T>);
            CHECK(distance(input.numbers, dx.numbers) < tolerance<T>);
            CHECK(distance(weight.numbers, dw.numbers) < tolerance<A>);
            const auto once = input.numbers;
            ops::grouped_product_input(on.queue, input.view(), (gather ? dy : dys).view(), w.view(), N, offsets, groups,
                                       true, order);
            for (std::size_t i = 0; i < once.size(); ++i)
                CHECK(static_cast<double>(input.numbers[i]) ==
                      doctest::Approx(2 * static_cast<double>(once[i])).epsilon(tolerance<T>).scale(0.1));
        }
}

TEST_CASE("shapes that do not fit are refused") {
    pool on(1, float{});
    held<float> x(4, 3), w(5, 2), y(4, 5);
    CHECK_THROWS_WITH_AS(ops::product(on.queue, y.view(), x.view(), w.view()),
                         "product: found result 4 x 5, operands 4 x 3 and 5 x 2, expected shapes that fit each other",
                         error);
}
