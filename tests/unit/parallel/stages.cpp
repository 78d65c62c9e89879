// The layers of a stage, evenly divided and said one by one.
#include <doctest/doctest.h>

#include <fathom/parallel/stages.hpp>

namespace {

using namespace fathom;

TEST_CASE("layers are contiguous, and every one has a holder") {
    using uneven = stage_layers<stages<8, 8, 7, 7>, 30, 4>;
    static_assert(uneven::of(0) == layer_range{0, 8});
    static_assert(uneven::of(3) == layer_range{23, 7});
    static_assert(uneven::holder(15) == 1 && uneven::holder(16) == 2 && uneven::holder(29) == 3);
    using even = stage_layers<stages<>, 12, 4>;
    static_assert(even::of(2) == layer_range{6, 3});
    integer next = 0;
    for (integer stage = 0; stage < 4; ++stage) {
        CHECK(uneven::of(stage).first == next);
        next += uneven::of(stage).count;
        CHECK(even::of(stage) == layer_range{3 * stage, 3});
    }
    CHECK(next == 30);
    for (integer layer = 0; layer < 12; ++layer) CHECK(even::holder(layer) == layer / 3);
    CHECK(uneven::of(4) == layer_range{});
    CHECK(uneven::of(-1) == layer_range{});
    CHECK(uneven::holder(30) == -1);
    CHECK(uneven::holder(-1) == -1);
}

}  // namespace
