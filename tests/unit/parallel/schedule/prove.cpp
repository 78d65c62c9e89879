// The proof finds every way in which we know to break a table, and says where.
#include <doctest/doctest.h>

#include <fathom/parallel/schedule.hpp>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace fathom;
using schedule::action, schedule::problem, schedule::proof, schedule::step, schedule::transfer, schedule::work;

/// A table that can be damaged.
struct open_table {
    schedule::shape shape;
    std::vector<action> actions;
    std::vector<transfer> transfers;
    std::vector<int> begin;

    explicit open_table(const schedule::table& t)
        : shape(t.shape),
          actions(t.actions.begin(), t.actions.end()),
          transfers(t.transfers.begin(), t.transfers.end()),
          begin(t.begin.begin(), t.begin.end()) {}
    open_table(const schedule::shape& s, const std::vector<step>& steps) : shape(s) {
        actions.resize(static_cast<std::size_t>(schedule::most_actions(s, static_cast<int>(steps.size()))));
        transfers.resize(static_cast<std::size_t>(schedule::most_transfers(s)));
        begin.resize(static_cast<std::size_t>(s.ranks) + 1);
        const auto lowered = schedule::lower(s, steps, {actions, transfers, begin});
        actions.resize(lowered.actions.size());
        transfers.resize(lowered.transfers.size());
    }
    schedule::table view() const { return {shape, actions, transfers, begin}; }
    proof prove() const { return schedule::prove(view()); }
    void erase(int index) {
        actions.erase(actions.begin() + index);
        for (int& b : begin) b -= b > index;
    }
    int rank_of(int index) const {
        int rank = 0;
        while (begin[static_cast<std::size_t>(rank) + 1] <= index) ++rank;
        return rank;
    }
};

std::vector<open_table> samples() {
    std::vector<open_table> tables;
    for (const char* name : {"gpipe", "one_f_one_b", "interleaved_one_f_one_b<2>", "zb_h1", "zb_v", "dual_pipe_v"})
        tables.emplace_back(schedule::built::named(name, 3, 7).view());
    tables.emplace_back(schedule::built::named("dual_pipe", 4, 8).view());
    return tables;
}

TEST_CASE("an action that is dropped is found") {
    for (const open_table& whole : samples())
        for (int i = 0; i < static_cast<int>(whole.actions.size()); ++i) {
            open_table broken = whole;
            broken.erase(i);
            const proof p = broken.prove();
            CAPTURE(i);
            const action& dropped = whole.actions[static_cast<std::size_t>(i)];
            if (dropped.what != work::exchange) {
                CHECK(p.found == problem::lost);
                CHECK(p.rank == whole.rank_of(i));
                CHECK((p.micro_batch == dropped.micro_batch || p.micro_batch == dropped.backward_micro_batch));
            } else {
                CHECK((p.found == problem::early || p.found == problem::unmatched || p.found == problem::crossed));
            }
        }
}

TEST_CASE("an action that is done twice is found") {
    for (const open_table& whole : samples())
        for (int i = 0; i < static_cast<int>(whole.actions.size()); ++i) {
            open_table broken = whole;
            broken.actions.insert(broken.actions.begin() + i, broken.actions[static_cast<std::size_t>(i)]);
            for (int& b : broken.begin) b += b > i;
            const proof p = broken.prove();
            CHECK(p.found == problem::repeated);
            CHECK(p.rank == whole.rank_of(i));
            CHECK(p.action == i + 1 - whole.begin[static_cast<std::size_t>(p.rank)]);
        }
}

TEST_CASE("two actions that change places are found, or still make a table that runs") {
    int found = 0, runs = 0;
    for (const open_table& whole : samples())
        for (int i = 0; i + 1 < static_cast<int>(whole.actions.size()); ++i) {
            if (whole.rank_of(i) != whole.rank_of(i + 1)) continue;
            open_table broken = whole;
            std::swap(broken.actions[static_cast<std::size_t>(i)], broken.actions[static_cast<std::size_t>(i) + 1]);
            (broken.prove().holds() ? runs : found) += 1;
            // A forward before its input is here is never right.
            const action &one = whole.actions[static_cast<std::size_t>(i)],
                         &two = whole.actions[static_cast<std::size_t>(i) + 1];
            for (int k = one.first + one.sends; k < one.first + one.sends + one.receives; ++k) {
                const transfer& x = whole.transfers[static_cast<std::size_t>(k)];
                if (two.what == work::forward && x.what == schedule::cargo::activation && x.chunk == two.chunk &&
                    x.micro_batch == two.micro_batch)
                    CHECK(broken.prove().found == problem::early);
            }
        }
    CHECK(found > 100);
    CHECK(runs > 10);
}

TEST_CASE("a transfer with anything changed is found") {
    for (const open_table& whole : samples())
        for (std::size_t k = 0; k < whole.transfers.size(); ++k) {
            CAPTURE(k);
            const auto found = [&](auto change) {
                open_table broken = whole;
                change(broken.transfers[k]);
                return broken.prove().found;
            };
            CHECK(found([&](transfer& x) { x.peer = (x.peer + 1) % whole.shape.ranks; }) == problem::wrong_peer);
            CHECK(found([](transfer& x) { x.peer = -1; }) == problem::foreign);
            CHECK(found([&](transfer& x) { x.micro_batch = whole.shape.micro_batches; }) == problem::foreign);
            CHECK(found([&](transfer& x) { x.chunk = whole.shape.chunks; }) == problem::foreign);
            CHECK(found([](transfer& x) { x.micro_batch += x.micro_batch % 2 ? -1 : 1; }) != problem::none);
            CHECK(found([](transfer& x) {
                      x.what =
                          x.what == schedule::cargo::gradient ? schedule::cargo::activation : schedule::cargo::gradient;
                  }) != problem::none);
        }
}

TEST_CASE("sends and receives that wait inline for each other are a deadlock") {
    // One rank after the other sends first, then receives: each waits in its send.
    const schedule::shape two{.ranks = 2, .micro_batches = 2};
    open_table split(schedule::built::of<schedule::one_f_one_b>(4, 8).view());
    for (int i = 0; i < static_cast<int>(split.actions.size()); ++i) {
        const action whole = split.actions[static_cast<std::size_t>(i)];
        if (whole.sends == 0 || whole.receives == 0) continue;
        split.actions[static_cast<std::size_t>(i)].receives = 0;
        action rest = whole;
        rest.first += whole.sends;
        rest.sends = 0;
        split.actions.insert(split.actions.begin() + i + 1, rest);
        for (int& b : split.begin) b += b > i;
        ++i;
    }
    const proof p = split.prove();
    REQUIRE(p.found == problem::deadlock);
    CHECK(p.rank == 0);
    CHECK(split.actions[static_cast<std::size_t>(p.action)].sends == 1);
    CHECK(schedule::explain(p) == "rank 0, action 11: found a transfer that waits for ever, of micro-batch 4, chunk 0");

    // Rank 0 wants the gradient of micro-batch 0 before it hands out micro-batch 1, rank 1 wants both first.
    const open_table circle(two, {{0, work::forward, 0},
                                  {0, work::backward, 0},
                                  {0, work::forward, 1},
                                  {0, work::backward, 1},
                                  {1, work::forward, 0},
                                  {1, work::forward, 1},
                                  {1, work::backward, 0},
                                  {1, work::backward, 1}});
    CHECK(circle.prove().found == problem::deadlock);
    CHECK_THROWS_WITH_AS(
        (schedule::built{two, std::vector<step>{{0, work::forward, 0}}, "mine"}),
        "mine: rank 0: found a forward, input's or weights' gradient that nobody does, of micro-batch 0, "
        "chunk 0",
        fathom::error);
}

TEST_CASE("ranks that count a channel in different orders are found") {
    using enum work;
    using enum schedule::cargo;
    open_table grouped(schedule::built::of<schedule::gpipe>(2, 2).view());
    grouped.actions = {{{0, forward, 0}},  {{0, forward, 1}},  {{0, exchange}, 0, 2, 0}, {{0, exchange}, 2, 0, 2},
                       {{0, backward, 0}}, {{0, backward, 1}}, {{1, exchange}, 4, 0, 2}, {{1, forward, 0}},
                       {{1, forward, 1}},  {{1, backward, 0}}, {{1, backward, 1}},       {{1, exchange}, 6, 2, 0}};
    grouped.transfers = {{activation, 1, 0}, {activation, 1, 1}, {gradient, 1, 0}, {gradient, 1, 1},
                         {activation, 0, 0}, {activation, 0, 1}, {gradient, 0, 0}, {gradient, 0, 1}};
    grouped.begin = {0, 6, 12};
    CHECK(grouped.prove().holds());
    open_table crossed = grouped;
    std::swap(crossed.transfers[4], crossed.transfers[5]);
    CHECK(crossed.prove().found == problem::crossed);
    CHECK(crossed.prove().rank == 1);
    std::swap(crossed.transfers[0], crossed.transfers[1]);
    CHECK(crossed.prove().holds());
}

TEST_CASE("sizes and names that are not there are found") {
    const std::vector<step> steps{{0, work::forward, 0}, {0, work::backward, 0}};
    CHECK(open_table({.ranks = 1, .micro_batches = 1}, steps).prove().holds());
    CHECK(open_table({.ranks = 65, .micro_batches = 1}, {}).prove().found == problem::sizes);
    open_table odd({.ranks = 1, .micro_batches = 1}, steps);
    odd.shape.way = schedule::route::two_way;
    CHECK(odd.prove().found == problem::sizes);
    odd = open_table({.ranks = 1, .micro_batches = 1}, steps);
    odd.begin.push_back(2);
    CHECK(odd.prove().found == problem::sizes);
    for (const step& foreign : {step{1, work::forward, 0}, step{-1, work::forward, 0}, step{0, work::forward, 1},
                                step{0, work::forward, 0, 1}, step{0, work::backward, -1},
                                step{0, work::overlapped, 0, 0, 1, 0}, step{0, work::overlapped, 0, 0, 0, 7}})
        CHECK(open_table({.ranks = 1, .micro_batches = 1}, {foreign}).prove().found == problem::foreign);
    open_table beyond(schedule::built::of<schedule::gpipe>(2, 2).view());
    for (action& a : beyond.actions)
        if (a.what == work::exchange) a.first = 1'000;
    CHECK(beyond.prove().found == problem::foreign);
    CHECK_THROWS_AS((schedule::built{{.ranks = 0}, steps}), fathom::error);
}

TEST_CASE("a stage that adds gradients in another order is told, not refused") {
    const open_table turned(
        {.ranks = 1, .micro_batches = 2},
        {{0, work::forward, 0}, {0, work::forward, 1}, {0, work::backward, 1}, {0, work::backward, 0}});
    CHECK(turned.prove().holds());
    CHECK(!turned.prove().in_order);
}

}  // namespace
