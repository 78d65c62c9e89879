// Lowering: the computations stay as they were written, and each tensor crosses between neighbouring stages once.
#include <doctest/doctest.h>

#include <algorithm>
#include <fathom/parallel/schedule.hpp>
#include <map>
#include <tuple>
#include <vector>

namespace {

using namespace fathom;
using schedule::action, schedule::cargo, schedule::step, schedule::transfer, schedule::work;

TEST_CASE("two ranks by hand") {
    const schedule::shape two{.ranks = 2, .micro_batches = 1};
    const std::vector<step> steps{
        {1, work::forward, 0}, {0, work::forward, 0}, {1, work::backward, 0}, {0, work::backward, 0}};
    const schedule::built made(two, steps);
    const schedule::table t = made.view();
    // Rank 0 has nothing to do between its send and its receive: they are one exchange.
    REQUIRE(t.of(0).size() == 3);
    REQUIRE(t.of(1).size() == 4);
    CHECK(t.of(0)[0].what == work::forward);
    REQUIRE(t.of(0)[1].what == work::exchange);
    REQUIRE(t.sends(t.of(0)[1]).size() == 1);
    REQUIRE(t.receives(t.of(0)[1]).size() == 1);
    CHECK(t.sends(t.of(0)[1])[0].what == cargo::activation);
    CHECK(t.sends(t.of(0)[1])[0].peer == 1);
    CHECK(t.receives(t.of(0)[1])[0].what == cargo::gradient);
    CHECK(t.of(0)[2].what == work::backward);
    CHECK(t.receives(t.of(1)[0])[0].peer == 0);
    CHECK(t.of(1)[1].what == work::forward);
    CHECK(t.of(1)[2].what == work::backward);
    CHECK(t.sends(t.of(1)[3])[0].what == cargo::gradient);
}

TEST_CASE("every tensor is sent once and received once, between holders of neighbouring stages") {
    for (const char* name :
         {"gpipe", "one_f_one_b", "interleaved_one_f_one_b<3>", "zb_h1", "zb_v", "dual_pipe", "dual_pipe_v"}) {
        CAPTURE(name);
        const auto made = schedule::built::named(name, 4, 10);
        const schedule::table t = made.view();
        // (cargo, micro-batch, stage that reads it) -> sends, receives
        std::map<std::tuple<cargo, int, int>, std::pair<int, int>> seen;
        for (int rank = 0; rank < 4; ++rank)
            for (const action& a : t.of(rank)) {
                for (const transfer& x : t.sends(a)) {
                    const int stage = t.shape.stage_of(rank, x.chunk) + (x.what == cargo::activation ? 1 : -1);
                    CHECK(t.shape.rank_of(stage, x.micro_batch) == x.peer);
                    ++seen[{x.what, x.micro_batch, stage}].first;
                }
                for (const transfer& x : t.receives(a)) {
                    const int from = t.shape.stage_of(rank, x.chunk) + (x.what == cargo::activation ? -1 : 1);
                    CHECK(t.shape.rank_of(from, x.micro_batch) == x.peer);
                    ++seen[{x.what, x.micro_batch, t.shape.stage_of(rank, x.chunk)}].second;
                }
                if (a.what == work::exchange) CHECK(a.sends + a.receives > 0);
            }
        const int turns = t.shape.way == schedule::route::v ? 1 : 0;  // hops that stay on a rank
        CHECK(seen.size() == static_cast<std::size_t>(2 * 10 * (t.shape.stages() - 1 - turns)));
        CHECK(std::all_of(seen.begin(), seen.end(), [](const auto& x) { return x.second == std::pair{1, 1}; }));
        CHECK(t.transfers.size() == 2 * seen.size());
    }
}

TEST_CASE("stages lie where their route says") {
    using schedule::route, schedule::shape;
    constexpr shape loop{4, 8, 2, route::loop}, v{4, 8, 2, route::v}, both{4, 8, 2, route::two_way};
    static_assert(loop.stages() == 8 && v.stages() == 8 && both.stages() == 4);
    static_assert(loop.stage_of(1, 1) == 5 && v.stage_of(1, 1) == 6 && both.stage_of(1, 1) == 2);
    static_assert(loop.rank_of(5, 0) == 1 && v.rank_of(6, 0) == 1 && both.rank_of(2, 3) == 2 &&
                  both.rank_of(2, 4) == 1);
    for (const shape& s : {loop, v, both})
        for (int stage = 0; stage < s.stages(); ++stage)
            for (int micro_batch = 0; micro_batch < s.micro_batches; ++micro_batch) {
                const int rank = s.rank_of(stage, micro_batch), chunk = s.chunk_of(stage, micro_batch);
                CHECK(s.has(rank, chunk, micro_batch));
                CHECK(s.stage_of(rank, chunk) == stage);
            }
    CHECK(!both.has(0, 0, 4));
    CHECK(!both.has(0, 1, 3));
}

TEST_CASE("a timeline has the times of the picture") {
    const auto made = schedule::built::of<schedule::one_f_one_b>(2, 2);
    const schedule::table t = made.view();
    std::vector<double> begin(t.actions.size()), end(t.actions.size());
    REQUIRE(schedule::timeline(t, {1, 2, 1, 3}, begin.data(), end.data()));
    std::vector<double> first, second;
    for (std::size_t i = 0; i < t.actions.size(); ++i)
        if (t.actions[i].what != work::exchange) (t.actions[i].rank == 0 ? first : second).push_back(begin[i]);
    CHECK(first == std::vector<double>{0, 1, 4, 7});   // F0 F1 B0 B1
    CHECK(second == std::vector<double>{1, 2, 4, 5});  // F0 B0 F1 B1
    CHECK(made.proof().time == 9);
}

}  // namespace
