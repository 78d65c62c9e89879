#include <doctest/doctest.h>

#include <fathom/ops/elementwise.hpp>
#include <fathom/ops/rms_norm.hpp>
#include <fathom/ops/rms_norm/kernel.hpp>

#include "../unit/ops/numbers.hpp"
#include "launch.hpp"

namespace fathom::test {

namespace {

constexpr double epsilon = 1e-6;
/// Rows, width, and numbers between rows: all rows aligned to 16 bytes, some of them, and none but the first.
constexpr integer shapes[][3] = {{1, 1, 0}, {0, 5, 3}, {3, 48, 8}, {37, 300, 4}, {3, 48, 3}};

}  // namespace

TEST_CASE_TEMPLATE("the kernels of RMSNorm equal the host", T, double, float, bf16) {
    using A = accumulator_t<T>;
    pool p(1);
    for (const auto& [rows, width, gap] : shapes)
        for (const bool residual : {false, true}) {
            numbers<T> x(rows, width, 1, 2, gap), stream = x, branch(rows, width, 7, 1, gap), gain(1, width, 2),
                                                  y(rows, width, 0, 1, gap), found = y;
            numbers<A> inverse(1, rows), found_inverse(1, rows);
            if (residual) ops::add(p.queue, x.view(), branch.view());
            ops::rms_norm(p.queue, y.view(), inverse.data(), x.view(), gain.data(), epsilon);
            using kernel = ops::rms_norm_kernel<T>;
            launch(kernel{}, kernel::blocks(rows), found.view(), found_inverse.view(), stream.view(),
                   residual ? matrix<const T>{branch.view()} : matrix<const T>{}, matrix<const T>{gain.view()},
                   epsilon);
            CHECK(distance(found, y) < tolerance<T>);
            CHECK(distance(found_inverse, inverse) < tolerance<A>);
            CHECK(same_bits(stream.memory, x.memory));
        }
}

TEST_CASE_TEMPLATE("the kernels of RMSNorm's backward equal the host", T, double, float, bf16) {
    using A = accumulator_t<T>;
    pool p(1);
    for (const auto& [rows, width, gap] : shapes)
        for (const bool accumulate : {false, true}) {
            numbers<T> x(rows, width, 1, 2, gap), gain(1, width, 2), dy(rows, width, 3, 1, gap), dx(rows, width, 4),
                y(rows, width), found_dx = dx;
            numbers<A> inverse(1, rows), dgain(1, width, 5), found_dgain = dgain,
                                                             partials(pieces(rows, ops::rms_norm_rows), width);
            ops::rms_norm(p.queue, y.view(), inverse.data(), x.view(), gain.data(), epsilon);
            using kernel = ops::rms_norm_backward_kernel<T>;
            using sum = ops::add_rows_kernel<A>;
            launch(kernel{width}, kernel::blocks(rows), found_dx.view(), accumulate, partials.view(),
                   matrix<const T>{dy.view()}, matrix<const T>{x.view()}, matrix<const A>{inverse.view()},
                   matrix<const T>{gain.view()});
            launch(sum{}, sum::blocks(width), found_dgain.view(), matrix<const A>{partials.view()});
            ops::rms_norm_backward(p.queue, dx.view(), accumulate, dgain.data(), dy.view(), x.view(), inverse.data(),
                                   gain.data(), partials.view());
            CHECK(distance(found_dx, dx) < tolerance<T>);
            CHECK(distance(found_dgain, dgain) < tolerance<A>);
        }
}

}  // namespace fathom::test
