// Schedules that the compiler proves, against the figures that their authors give; the largest is within default
// limits.
#include <doctest/doctest.h>

#include <fathom/parallel/schedule.hpp>

namespace {

using namespace fathom;
using schedule::rank_figures, schedule::at, schedule::work;

/// Time, the most that a rank idles, activations, what is deferred, what is exchanged: all figures of a table.
struct figures {
    double time, idle;
    int activations, deferred, exchanged;
    constexpr bool operator==(const figures&) const = default;
};
template <class Table>
constexpr figures of{schedule::proof_of<Table>.time, schedule::proof_of<Table>.most(&rank_figures::idle),
                     schedule::proof_of<Table>.most(&rank_figures::activations),
                     schedule::proof_of<Table>.most(&rank_figures::deferred),
                     schedule::proof_of<Table>.most(&rank_figures::exchanged)};

// Forward 1, backward 2, of which 1 for weights, overlapped 3.
template <integer P, integer M> constexpr bool holds_at() {
    static_assert(schedule::proven<at<schedule::gpipe, P, M>>);
    static_assert(of<at<schedule::gpipe, P, M>> == figures{3 * M + 3 * (P - 1), 3 * (P - 1), M, 0, 2});
    static_assert(schedule::proven<at<schedule::one_f_one_b, P, M>>);
    static_assert(of<at<schedule::one_f_one_b, P, M>> ==
                  figures{3 * M + 3 * (P - 1), 3 * (P - 1), P, 0, P == 2 ? 2 : 3});
    static_assert(schedule::proven<at<schedule::zb_h1, P, M>>);
    static_assert(of<at<schedule::zb_h1, P, M>> == figures{3 * M + (P - 1), P - 1, P, P, P == 2 ? 2 : 3});
    static_assert(schedule::proven<at<schedule::dual_pipe, P, M>>);
    static_assert(of<at<schedule::dual_pipe, P, M>> ==
                  figures{3 * M + 2 * (P / 2 - 1), 2 * (P / 2 - 1), P + 1, P / 2, P < 8 ? 4 : 6});
    return true;
}
static_assert(holds_at<2, 6>() && holds_at<4, 8>() && holds_at<8, 16>() && holds_at<16, 32>());

// As published for DualPipe and DualPipeV.
static_assert(of<at<schedule::dual_pipe, 4, 8>> == figures{26, 2, 5, 2, 4});
static_assert(of<at<schedule::dual_pipe, 8, 20>> == figures{66, 6, 9, 4, 6});
static_assert(of<at<schedule::dual_pipe, 16, 40>> == figures{134, 14, 17, 8, 6});
static_assert(of<at<schedule::dual_pipe_v, 4, 10>> == figures{66, 6, 9, 4, 6});
static_assert(of<at<schedule::dual_pipe_v, 8, 20>> == figures{134, 14, 17, 8, 6});
static_assert(of<at<schedule::interleaved_one_f_one_b<2>, 8, 16>>.idle == 3 * 7);
static_assert(schedule::proof_of<at<schedule::zb_v, 4, 8>>.most(&rank_figures::idle_inside) == 0);

// Another cost, and the largest that is promised to fit.
static_assert(schedule::prove(schedule::table_of<at<schedule::dual_pipe, 8, 20>>, {1, 2, 1, 2.5})
                  .most(&rank_figures::idle) == 4.5);
static_assert(schedule::proven<at<schedule::one_f_one_b, 16, 240>>);

/// A table of one's own: an array.
struct mine {
    static constexpr schedule::shape shape{.ranks = 2, .micro_batches = 2};
    static constexpr schedule::step steps[] = {
        {0, work::forward, 0},  {0, work::forward, 1},         {0, work::backward_input, 0},
        {0, work::backward, 1}, {0, work::backward_weight, 0}, {1, work::forward, 0},
        {1, work::backward, 0}, {1, work::forward, 1},         {1, work::backward, 1}};
};
static_assert(schedule::proven<mine>);
static_assert(schedule::proof_of<mine>.time == 10 && !schedule::proof_of<mine>.in_order);

TEST_CASE("a table made by the compiler is the one that is made at start") {
    const auto built = schedule::built::of<schedule::dual_pipe>(4, 8);
    constexpr const auto& constant = schedule::table_of<at<schedule::dual_pipe, 4, 8>>;
    REQUIRE(built.view().actions.size() == constant.actions.size());
    REQUIRE(built.view().transfers.size() == constant.transfers.size());
    for (std::size_t i = 0; i < constant.actions.size(); ++i) {
        CHECK(built.view().actions[i].what == constant.actions[i].what);
        CHECK(built.view().actions[i].micro_batch == constant.actions[i].micro_batch);
        CHECK(built.view().actions[i].first == constant.actions[i].first);
    }
}

}  // namespace
