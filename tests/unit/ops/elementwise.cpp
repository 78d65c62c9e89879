#include <doctest/doctest.h>

#include <fathom/ops/elementwise.hpp>

#include "numbers.hpp"

namespace fathom::test {

namespace {

/// Empty, one number, gaps, a row longer than a task, more rows than a task holds.
struct shape {
    integer rows, width, gap;
};
constexpr shape shapes[] = {{0, 3, 0}, {1, 1, 0}, {5, 7, 3}, {2, 40'000, 1}, {3000, 17, 0}};

}  // namespace

TEST_CASE_TEMPLATE("copy, add, scale and fill_zero touch their numbers and no others", T, double, float, bf16) {
    using A = accumulator_t<T>;
    for (const auto& [rows, width, gap] : shapes)
        for (const int workers : {1, 3}) {
            pool p(workers);
            numbers<float> x(rows, width, 1, 3, 2);
            numbers<T> y(rows, width, 2, 1, gap), sum = y, scaled = y, same(rows, width, 0, 1, gap);
            ops::add(p.queue, sum.view(), x.view());
            ops::scale(p.queue, scaled.view(), 1.7);
            ops::copy(p.queue, same.view(), x.view());
            bool equal = true;
            for (integer r = 0; r < rows; ++r)
                for (integer i = 0; i < width; ++i) {
                    const A old = static_cast<A>(y.view()(r, i)), more = static_cast<A>(x.view()(r, i));
                    equal = equal && sum(r, i) == static_cast<double>(static_cast<T>(old + more)) &&
                            scaled(r, i) == static_cast<double>(static_cast<T>(old * static_cast<A>(1.7))) &&
                            same(r, i) == static_cast<double>(static_cast<T>(more));
                }
            CHECK(equal);
            for (integer r = 0; r < rows; ++r)
                for (integer i = width; i < width + gap; ++i) {
                    CHECK(sum(r, i) == 0);
                    CHECK(same(r, i) == 0);
                }
            const auto before = y.memory;
            if (y.memory.size() < 3) continue;
            const auto count = static_cast<integer>(y.memory.size()) - 2;
            ops::fill_zero(p.queue, y.data() + 1, count);
            CHECK(static_cast<A>(y.memory.front()) == static_cast<A>(before.front()));
            CHECK(static_cast<A>(y.memory.back()) == static_cast<A>(before.back()));
            CHECK(std::all_of(y.memory.begin() + 1, y.memory.end() - 1, [](T n) { return static_cast<A>(n) == 0; }));
        }
}

TEST_CASE("copy converts between double and bf16") {
    pool p(1);
    const double above = 1 + 0x1p-8 + 0x1p-20;  // the middle of two bf16 and a little
    bf16 rounded;
    double wide = 0;
    ops::copy(p.queue, matrix<bf16>{&rounded, 1, 1}, matrix<const double>{&above, 1, 1});
    ops::copy(p.queue, matrix<double>{&wide, 1, 1}, matrix<bf16>{&rounded, 1, 1});
    CHECK(wide == 1.0078125);
}

TEST_CASE_TEMPLATE("sum_parts adds the parts of each row in order", T, double, float, bf16) {
    using A = accumulator_t<T>;
    constexpr integer parts = 3, step = 100, width = 70, offset = 20;
    for (const integer rows : {0, 1, 400})
        for (const bool accumulate : {false, true}) {
            pool p(2);
            numbers<T> from(rows, parts * step, 1), to(rows, width, 2, 1, 1), expected = to;
            for (integer r = 0; r < rows; ++r)
                for (integer i = 0; i < width; ++i) {
                    A sum{0};
                    for (integer n = 0; n < parts; ++n) sum += static_cast<A>(from.view()(r, n * step + offset + i));
                    T& out = expected.view()(r, i);
                    out = static_cast<T>(accumulate ? static_cast<A>(out) + sum : sum);
                }
            if (!accumulate)
                for (integer r = 0; r < rows; ++r)
                    for (integer i = 0; i < width; ++i) to.view()(r, i) = static_cast<T>(NAN);
            const auto heads = from.view().columns_at(offset, parts * step - offset);
            ops::sum_parts(p.queue, to.view(), accumulate, heads, parts, step);
            CHECK(same_bits(to.memory, expected.memory));
        }
}

}  // namespace fathom::test
