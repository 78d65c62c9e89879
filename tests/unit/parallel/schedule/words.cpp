// Every schedule at many sizes: it holds, and its bubble and peaks are those of its paper.
#include <doctest/doctest.h>

#include <algorithm>
#include <fathom/parallel/schedule.hpp>
#include <initializer_list>

namespace {

using namespace fathom;
using schedule::rank_figures;

constexpr double F = 1, B = 2, W = 1, FB = 3;

TEST_CASE_TEMPLATE("a schedule holds at every size that it takes", Schedule, schedule::gpipe, schedule::one_f_one_b,
                   schedule::interleaved_one_f_one_b<1>, schedule::interleaved_one_f_one_b<2>,
                   schedule::interleaved_one_f_one_b<5>, schedule::zb_h1, schedule::zb_v, schedule::dual_pipe,
                   schedule::dual_pipe_v) {
    int taken = 0;
    for (const int ranks : {1, 2, 3, 4, 6, 8, 16})
        for (int micro_batches = 1; micro_batches <= 5 * ranks + 2; micro_batches += ranks > 6 ? 5 : 1) {
            CAPTURE(ranks);
            CAPTURE(micro_batches);
            if (!Schedule::fits(ranks, micro_batches)) {
                CHECK_THROWS_AS(schedule::built::of<Schedule>(ranks, micro_batches), fathom::error);
                continue;
            }
            ++taken;
            const auto made = schedule::built::of<Schedule>(ranks, micro_batches);
            CHECK(made.proof().holds());
            CHECK(made.proof().in_order);  // so gradients are added as one rank adds them
            CHECK(made.proof().time <= made.proof().time_in_step);
        }
    CHECK(taken > 20);
}

template <class Schedule> schedule::proof proof_of(int ranks, int micro_batches, const schedule::costs& costs = {}) {
    return schedule::prove(schedule::built::of<Schedule>(ranks, micro_batches).view(), costs);
}

TEST_CASE("bubbles and peaks are the published ones") {
    for (const int P : {2, 4, 8, 16})
        for (const int M : {2 * P, 2 * P + 2, 5 * P, 5 * P + 4}) {
            CAPTURE(P);
            CAPTURE(M);
            const auto gpipe = proof_of<schedule::gpipe>(P, M);
            const auto one = proof_of<schedule::one_f_one_b>(P, M);
            const auto three = proof_of<schedule::interleaved_one_f_one_b<3>>(P, M);
            const auto h1 = proof_of<schedule::zb_h1>(P, M);
            const auto v = proof_of<schedule::zb_v>(P, M);
            const auto dual = proof_of<schedule::dual_pipe>(P, M);
            const auto dual_v = proof_of<schedule::dual_pipe_v>(P / 2, M);
            CHECK(gpipe.time == M * (F + B) + (P - 1) * (F + B));
            CHECK(one.time == gpipe.time);
            CHECK(three.time == 3 * M * (F + B) + (P - 1) * (F + B));  // of chunks that are a third as large
            CHECK(h1.time == M * (F + B) + (P - 1) * (F + B - 2 * W));
            CHECK(v.time == 2 * M * (F + B) + P - 1);
            CHECK(dual.time == M * FB + (P / 2 - 1) * (FB + B - 3 * W));
            CHECK(dual_v.time == 2 * M * FB + (P / 2 - 1) * (FB + B - 3 * W));
            for (int rank = 0; rank < P; ++rank) {
                const auto r = static_cast<unsigned>(rank);
                CHECK(gpipe.ranks[r].idle == (P - 1) * (F + B));
                CHECK(one.ranks[r].idle == (P - 1) * (F + B));
                CHECK(one.ranks[r].activations == P - rank);
                CHECK(three.ranks[r].idle == (P - 1) * (F + B));
                CHECK(h1.ranks[r].idle == (P - 1) * (F + B - 2 * W));
                CHECK(h1.ranks[r].kept == std::min(P, M));  // the memory of 1F1B's first rank, on every rank
                CHECK(v.ranks[r].idle_inside == 0);
                CHECK(v.ranks[r].kept <= 2 * P);  // of chunks that are half as large
                CHECK(dual.ranks[r].idle == (P / 2 - 1) * (FB + B - 3 * W));
                CHECK(dual.ranks[r].activations <= P + 1);
            }
            CHECK(gpipe.most(&rank_figures::activations) == M);
            CHECK(one.most(&rank_figures::activations) == P);
            CHECK(one.most(&rank_figures::deferred) == 0);
            CHECK(h1.most(&rank_figures::activations) == P);
            CHECK(h1.most(&rank_figures::deferred) == P);
            CHECK(v.most(&rank_figures::activations) == 2 * P);
            CHECK(dual.most(&rank_figures::activations) == P + 1);
            CHECK(dual_v.most(&rank_figures::activations) == P + 1);
            CHECK(dual.most(&rank_figures::deferred) == std::max(P / 2, 1));
            // What is under way stays small however many micro-batches there are.
            CHECK(gpipe.most(&rank_figures::exchanged) == 2);
            CHECK(one.most(&rank_figures::exchanged) <= 3);
            CHECK(h1.most(&rank_figures::exchanged) <= 3);
            CHECK(v.most(&rank_figures::exchanged) <= 4);
            CHECK(dual.most(&rank_figures::exchanged) <= 6);
            CHECK(dual_v.most(&rank_figures::exchanged) <= 6);
        }
}

TEST_CASE("bubbles follow the costs") {
    const schedule::costs slow_overlap{1, 2, 1, 2.5};
    for (const int P : {4, 8, 16})  // idle differs by rank: the formula is the most
        CHECK(proof_of<schedule::dual_pipe>(P, 3 * P, slow_overlap).most(&rank_figures::idle) ==
              (P / 2 - 1) * (2.5 + B - 3 * W));
    const schedule::costs slow_forward{2, 3, 1, 5};
    CHECK(proof_of<schedule::one_f_one_b>(8, 20, slow_forward).most(&rank_figures::idle) == 7 * (2 + 3));
    CHECK(proof_of<schedule::gpipe>(8, 20, slow_forward).most(&rank_figures::idle) == 7 * (2 + 3));
}

TEST_CASE("interleaving divides the bubble by the chunks") {
    const schedule::costs half{0.5, 1, 0.5, 1.5}, quarter{0.25, 0.5, 0.25, 0.75};
    CHECK(proof_of<schedule::one_f_one_b>(8, 16).most(&rank_figures::idle) == 21);
    CHECK(proof_of<schedule::interleaved_one_f_one_b<2>>(8, 16, half).most(&rank_figures::idle) == 10.5);
    CHECK(proof_of<schedule::interleaved_one_f_one_b<4>>(8, 16, quarter).most(&rank_figures::idle) == 5.25);
}

TEST_CASE("a schedule is found by its name") {
    const auto made = schedule::built::named("interleaved_one_f_one_b<3>", 4, 9);
    CHECK(made.view().shape.chunks == 3);
    CHECK(made.proof().time == proof_of<schedule::interleaved_one_f_one_b<3>>(4, 9).time);
    CHECK(schedule::built::named("dual_pipe", 4, 8).proof().time == 26);
    CHECK_THROWS_WITH_AS(schedule::built::named("dual_pipe", 4, 6),
                         "dual_pipe: found 4 ranks and 6 micro-batches, expected an even number of ranks, and an even "
                         "number of micro-batches of at least twice that",
                         fathom::error);
    for (const char* wrong : {"", "1f1b", "interleaved_one_f_one_b", "interleaved_one_f_one_b<0>", "gpipe<2>",
                              "interleaved_one_f_one_b<2", "interleaved_one_f_one_b<12>", "<2>"})
        CHECK_THROWS_AS(schedule::built::named(wrong, 2, 4), fathom::error);
}

}  // namespace
