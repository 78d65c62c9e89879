#include <doctest/doctest.h>

#include <fathom/optim/adamw.hpp>
#include <fathom/optim/adamw_kernel.hpp>
#include <fathom/optim/gradient_norm.hpp>
#include <fathom/optim/gradient_norm_kernel.hpp>
#include <vector>

#include "../unit/ops/numbers.hpp"
#include "launch.hpp"

namespace fathom::test {

TEST_CASE_TEMPLATE("the kernel of AdamW equals the host", T, double, float, bf16) {
    using A = accumulator_t<T>;
    using kernel = optim::adamw_kernel<T, A>;
    pool p(1);
    constexpr bool rounded = sizeof(T) == 2;  // otherwise the master weights are the weights
    for (const integer count : {0, 1, 5000})
        for (const bool decayed : {false, true}) {
            numbers<A> master(1, count, 1), m(1, count, 2), v(1, count, 3), gradient(1, count, 4);
            for (A& square : v.memory) square *= square;
            numbers<T> weights(1, count);
            auto found = master, found_m = m, found_v = v;
            auto found_weights = weights;
            std::vector<optim::step_state> state(1);
            state[0].learning_rate = 1e-2, state[0].step = 3, state[0].loss_scale = 4, state[0].clip_factor = 0.5;
            T* const at = rounded ? weights.data() : reinterpret_cast<T*>(master.data());
            optim::adamw_update(p.queue,
                                optim::adamw_range<T, A>{master.data(), at, m.data(), v.data(), count, decayed},
                                gradient.data(), {}, state.data());
            launch(kernel{{}}, kernel::blocks(count), found.view(), rounded ? found_weights.view() : matrix<T>{},
                   found_m.view(), found_v.view(), matrix<const A>{gradient.view()}, decayed,
                   vector_view<const optim::step_state>(state.data(), 1));
            CHECK(distance(found, master) < tolerance<A>);
            CHECK(distance(found_m, m) < tolerance<A>);
            CHECK(distance(found_v, v) < tolerance<A>);
            CHECK(distance(found_weights, weights) < tolerance<T>);
        }
}

TEST_CASE_TEMPLATE("the kernels of the gradient's norm and of clipping equal the host", A, double, float) {
    using square = optim::squared_norm_kernel<A>;
    pool p(1);
    constexpr integer counts[] = {1, 40000, 0};
    std::vector<double> squares(3), found_squares(3);
    for (int i = 0; i < 3; ++i) {
        numbers<A> gradient(1, counts[i], 1);
        numbers<double> partials(1, square::blocks(counts[i])), found(1, square::blocks(counts[i]));
        optim::squared_norm(p.queue, gradient.data(), counts[i], partials.data(), squares.data() + i);
        launch(square{}, square::blocks(counts[i]), found.view(), matrix<const A>{gradient.view()});
        launch(optim::sum_kernel{}, 1, vector_view(found_squares.data() + i, 1), matrix<const double>{found.view()});
        CHECK(found_squares[i] == doctest::Approx(squares[i]).epsilon(1e-14));
    }
    for (const double most : {0.0, 1.0, 1e6}) {
        std::vector<optim::step_state> state(1), found_state(1);
        state[0].loss_scale = found_state[0].loss_scale = 2;
        optim::clip(p.queue, squares.data(), 3, most, state.data());
        launch(optim::clip_kernel{}, 1, vector_view(found_state.data(), 1),
               vector_view<const double>(squares.data(), 3), most);
        CHECK(found_state[0].gradient_norm == doctest::Approx(state[0].gradient_norm).epsilon(1e-14));
        CHECK(found_state[0].clip_factor == doctest::Approx(state[0].clip_factor).epsilon(1e-14));
    }
}

}  // namespace fathom::test
