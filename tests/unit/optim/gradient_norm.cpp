#include <doctest/doctest.h>

#include <fathom/optim/gradient_norm.hpp>

#include "../ops/numbers.hpp"

namespace fathom::test {

TEST_CASE_TEMPLATE("a squared norm is summed in double, the same with any number of workers", A, double, float) {
    for (const integer count : {0, 1, 50'003}) {
        numbers<A> gradient(1, count, 1);
        double expected = 0;
        for (integer i = 0; i < count; ++i) expected += gradient(0, i) * gradient(0, i);
        double first = -1;
        for (const int workers : {1, 2, 3}) {
            pool p(workers);
            std::vector<double> partials(static_cast<std::size_t>(pieces(count, optim::squared_norm_chunk)));
            double found = -1;
            optim::squared_norm(p.queue, gradient.data(), count, partials.data(), &found);
            CHECK(found == doctest::Approx(expected).epsilon(1e-13));
            if (workers == 1) first = found;
            CHECK(found == first);
        }
    }
}

TEST_CASE("clipping shrinks what is too long, and says what the norm is") {
    pool p(1);
    optim::step_state state;
    const double squares[] = {9, 16};
    optim::clip(p.queue, squares, 2, 1, &state);
    CHECK(state.gradient_norm == 5);
    CHECK(state.clip_factor == 1 / (5 + 1e-6));
    optim::clip(p.queue, squares, 2, 10, &state);
    CHECK(state.clip_factor == 1);
    optim::clip(p.queue, squares, 2, 0, &state);
    CHECK(state.clip_factor == 1);
    state.loss_scale = 10;
    optim::clip(p.queue, squares, 2, 0.25, &state);
    CHECK(state.gradient_norm == 0.5);
    CHECK(state.clip_factor == doctest::Approx(0.5).epsilon(1e-5));
    const double bad[] = {1, NAN};
    optim::clip(p.queue, bad, 2, 1, &state);
    CHECK(std::isnan(state.gradient_norm));
    CHECK(std::isnan(state.clip_factor));
}

TEST_CASE_TEMPLATE("the first number that is not finite is found, counted by rows without the gaps", T, double, float,
                   bf16) {
    pool p(2);
    numbers<T> values(4, 5, 1, 1, 2);
    integer found = 99;
    for (integer r = 0; r < 4; ++r) values.view().row(r)[5] = static_cast<T>(NAN);  // in a gap
    optim::find_non_finite(p.queue, values.view(), &found);
    CHECK(found == -1);
    values.view()(3, 4) = static_cast<T>(NAN);
    optim::find_non_finite(p.queue, values.view(), &found);
    CHECK(found == 19);
    values.view()(2, 1) = static_cast<T>(-INFINITY);
    optim::find_non_finite(p.queue, values.view(), &found);
    CHECK(found == 11);
}

}  // namespace fathom::test
