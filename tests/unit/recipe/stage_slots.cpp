// The room that a rank plans for its micro-batches is what a schedule's proof says is alive, and one more where the
// next is received before it is needed.
#include <doctest/doctest.h>

#include <fathom/parallel/schedule/built.hpp>
#include <fathom/recipe/stage_slots.hpp>

namespace fathom {
namespace {

template <class Schedule> void check_room(int ranks, int micro_batches) {
    CAPTURE(std::string{Schedule::name});
    CAPTURE(ranks);
    const auto made = schedule::built::of<Schedule>(ranks, micro_batches);
    for (int rank = 0; rank < ranks; ++rank) {
        CAPTURE(rank);
        const planning::stage_slots room = planning::slots_of(made.view(), rank);
        const schedule::rank_figures& alive = made.proof().ranks[static_cast<std::size_t>(rank)];
        integer kept = 0, deferred = 0;
        for (int c = 0; c < Schedule::chunks; ++c) {
            kept += room.kept[static_cast<std::size_t>(c)];
            deferred += room.deferred[static_cast<std::size_t>(c)];
            CHECK(room.kept[static_cast<std::size_t>(c)] <= alive.kept + 1);
        }
        // Chunks have their peaks at different times, so together they may take more than is alive at once.
        CHECK(kept >= alive.kept);
        CHECK(deferred >= std::max(alive.deferred, 1));
        CHECK(room.apart == (alive.deferred > 0));
        CHECK(room.holds(room));
        if (Schedule::chunks > 1) continue;
        CHECK(kept <= alive.kept + 1);
        CHECK(deferred == std::max(alive.deferred, 1));
    }
}

}  // namespace

TEST_CASE("stage slots: what a schedule's proof says is alive, and no more than one beside it") {
    for (const int ranks : {2, 4, 8}) {
        check_room<schedule::gpipe>(ranks, 2 * ranks);
        check_room<schedule::one_f_one_b>(ranks, 2 * ranks);
        check_room<schedule::interleaved_one_f_one_b<2>>(ranks, 2 * ranks);
        check_room<schedule::zb_h1>(ranks, 2 * ranks);
        check_room<schedule::zb_v>(ranks, 2 * ranks);
        check_room<schedule::dual_pipe>(ranks, 2 * ranks);
        check_room<schedule::dual_pipe_v>(ranks, 2 * ranks);
    }
}

TEST_CASE("stage slots: 1F1B keeps as many micro-batches as there are ranks to come, however many a step has") {
    for (const int micro_batches : {8, 40}) {
        const auto made = schedule::built::of<schedule::one_f_one_b>(4, micro_batches);
        CHECK(planning::slots_of(made.view(), 0).kept[0] == 4);
        CHECK(planning::slots_of(made.view(), 3).kept[0] == 2);
    }
    const auto few = schedule::built::of<schedule::gpipe>(2, 3), many = schedule::built::of<schedule::gpipe>(2, 4);
    CHECK(planning::slots_of(many.view(), 0).holds(planning::slots_of(few.view(), 0)));
    CHECK(!planning::slots_of(few.view(), 0).holds(planning::slots_of(many.view(), 0)));
}

TEST_CASE("stage slots: where a chunk follows one of the same rank") {
    const auto v = schedule::built::of<schedule::zb_v>(4, 8);
    for (int rank = 0; rank < 4; ++rank) {
        CHECK(planning::before_is_here(v.view().shape, rank, 1) == (rank == 3));
        CHECK(planning::after_is_here(v.view().shape, rank, 0) == (rank == 3));
        CHECK(!planning::before_is_here(v.view().shape, rank, 0));
    }
    const auto two_way = schedule::built::of<schedule::dual_pipe>(4, 8);
    for (int rank = 0; rank < 4; ++rank) CHECK(!planning::before_is_here(two_way.view().shape, rank, 1));
}

}  // namespace fathom
