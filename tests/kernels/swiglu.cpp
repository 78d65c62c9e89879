#include <doctest/doctest.h>

#include <fathom/ops/swiglu.hpp>
#include <fathom/ops/swiglu/kernel.hpp>

#include "../unit/ops/numbers.hpp"
#include "launch.hpp"

namespace fathom::test {

TEST_CASE_TEMPLATE("the kernels of SwiGLU equal the host", T, double, float, bf16) {
    using A = accumulator_t<T>;
    using forward = ops::swiglu_kernel<T>;
    using backward = ops::swiglu_backward_kernel<T>;
    pool p(1);
    constexpr integer shapes[][3] = {{0, 3, 1}, {1, 1, 0}, {3, 65, 2}, {5, 304, 8}};
    for (const auto& [rows, width, gap] : shapes)
        for (const bool scaled : {false, true}) {
            numbers<T> gate_up(rows, 2 * width, 1, 2, gap), dact(rows, width, 2, 1, gap), act(rows, width, 0, 1, gap),
                found = act, dgate_up(rows, 2 * width, 0, 1, gap), found_d = gate_up;
            numbers<A> scale(1, rows, 3), dscale(1, rows), found_dscale(1, rows);
            const A* scales = scaled ? scale.data() : nullptr;
            const matrix<const A> scale_view = scaled ? matrix<const A>{scale.view()} : matrix<const A>{};
            ops::swiglu(p.queue, act.view(), gate_up.view(), scales);
            ops::swiglu_backward(p.queue, dgate_up.view(), dact.view(), gate_up.view(), scales,
                                 scaled ? dscale.data() : nullptr);
            launch(forward{}, forward::blocks(rows), found.view(), matrix<const T>{gate_up.view()}, scale_view);
            // In place, as experts do it.
            launch(backward{}, backward::blocks(rows), found_d.view(), matrix<const T>{dact.view()},
                   matrix<const T>{found_d.view()}, scale_view, scaled ? found_dscale.view() : matrix<A>{});
            CHECK(distance(found, act) < tolerance<T>);
            CHECK(distance(found_d, dgate_up) < tolerance<T>);
            CHECK(distance(found_dscale, dscale) < tolerance<A>);
        }
}

}  // namespace fathom::test
