// Faults by seed: no delay and no legal order changes a result or hangs; a dropped or killed operation ends every rank.
#include <doctest/doctest.h>

#include <fathom/comm.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "../scratch_folder.hpp"

namespace fathom {
namespace {

using faulty_ranks = comm::faulty<comm::threads::communicator>;
using test::message_of;

static_assert(comm::communicator<faulty_ranks>);
/// No case comes to its limit: each fault is seen at once.
constexpr comm::watchdog never{300};

/// A few rounds of everything on two communicators that overlap: rows and columns of a 2 x 2 mesh. Gives a sum over all
/// that a rank saw.
template <class Ranks> double mixed(Ranks& ranks, Ranks& row, Ranks& column) {
    const integer me = ranks.rank(), next = (me + 1) % 4, before = (me + 3) % 4;
    double seen = 0;
    for (int round = 0; round < 3; ++round) {
        std::vector<float> gradients(37, 0.1f * static_cast<float>(me + 1)), part(2), weights(4), out(5, 1.0f), in(5);
        std::vector<double> norm(3, 0.25 + static_cast<double>(me));
        const std::vector<integer> send{me % 2 + 1, 2}, send_at{0, 3}, receive_at{0, 3};
        std::vector<integer> receive(2);
        auto first = row.start(comm::all_reduce(gradients.data(), 37).from("gradients"));
        auto second = column.start(comm::all_reduce(norm.data(), 3, comm::reduction::max).from("norm"));
        const std::vector<comm::message> to_next{comm::send_to(next, out.data(), 5)},
            from_before{comm::receive_from(before, in.data(), 5)};
        auto third = ranks.start(comm::exchange(to_next));
        auto fourth = ranks.start(comm::exchange(from_before));
        row.run(comm::all_to_all(send.data(), receive.data(), 1));
        if (me % 2 == 0) second.wait();
        first.wait();
        part[0] = gradients[0];
        part[1] = static_cast<float>(me);
        column.run(comm::all_gather(part.data(), weights.data(), 2));
        std::vector<float> sent(5, static_cast<float>(me)), received(5);
        row.run(comm::all_to_all(sent.data(), send, send_at, received.data(), receive, receive_at));
        fourth.wait();
        third.wait();
        if (me % 2 == 1) second.wait();
        std::int64_t token = me;
        ranks.run(comm::broadcast(&token, 1, round));
        ranks.run(comm::barrier());
        for (const auto& each : {gradients, weights, in, received})
            seen = std::accumulate(each.begin(), each.end(), seen);
        seen += norm[0] + static_cast<double>(token);
    }
    return seen;
}

TEST_CASE("comm faulty: 200 seeds of delays and reordering, and the same numbers") {
    std::vector<double> expected(4);
    comm::threads::run(4, [&](comm::threads::communicator& ranks) {
        auto row = ranks.split(ranks.rank() / 2, 0, "row"), column = ranks.split(ranks.rank() % 2, 0, "column");
        expected[static_cast<std::size_t>(ranks.rank())] = mixed(ranks, row, column);
    });
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        std::vector<double> seen(4);
        comm::threads::run(4, [&](comm::threads::communicator& plain) {
            const integer me = plain.rank();
            faulty_ranks ranks{std::move(plain), {.seed = seed, .delay = 0.3, .reorder = 0.5}};
            auto row = ranks.split(me / 2, 0, "row"), column = ranks.split(me % 2, 0, "column");
            seen[static_cast<std::size_t>(me)] = mixed(ranks, row, column);
        });
        CHECK(seen == expected);
    }
}

TEST_CASE("comm faulty: operations are swapped where programs may not rely on their order, and nowhere else") {
    comm::threads::run(2, [](comm::threads::communicator& plain) {
        const integer peer = 1 - plain.rank();
        faulty_ranks ranks{std::move(plain), {.seed = 1, .reorder = 1.0}};
        std::int64_t a = 1, b = 1;
        const std::vector<comm::message> messages{comm::send_to(peer, &a, 1), comm::receive_from(peer, &b, 1)};
        {
            auto first = ranks.start(comm::barrier());
            auto second = ranks.start(comm::exchange(messages));
            first.wait();
            second.wait();
        }
        REQUIRE(ranks.recorder().size() == 2);
        CHECK(ranks.recorder()[0].kind == comm::operation::exchange);
        {
            auto first = ranks.start(comm::all_reduce(&b, 1));
            auto second = ranks.start(comm::barrier());
            second.wait();
            first.wait();
        }
        CHECK(ranks.recorder()[2].kind == comm::operation::all_reduce);
        {
            auto first = ranks.start(comm::exchange(std::span{messages}.first(1)).from("first"));
            auto second = ranks.start(comm::exchange(messages).from("second"));
            auto third = ranks.start(comm::exchange(std::span{messages}.last(1)).from("third"));
            third.wait();
            second.wait();
            first.wait();
        }
        CHECK(std::string{ranks.recorder()[4].label} == "first");
    });
}

/// The end of a job of three ranks in which rank 1 has a fault.
std::string end_with(const comm::faults& fault) {
    return message_of([&] {
        comm::threads::run(
            3,
            [&](comm::threads::communicator& plain) {
                const bool bad = plain.rank() == 1;
                faulty_ranks ranks{std::move(plain), bad ? fault : comm::faults{}};
                std::vector<float> data(100), gathered(300);
                for (int step = 0; step < 4; ++step) {
                    ranks.run(comm::all_reduce(data.data(), 100).from("gradients"));
                    ranks.run(comm::all_gather(data.data(), gathered.data(), 100).from("weights"));
                }
            },
            never);
    });
}

TEST_CASE("comm faulty: whichever operation is dropped, the job ends and names rank and operation") {
    for (integer k = 0; k < 8; ++k) {
        const std::string message = end_with({.drop_at = k});
        CHECK(message.find(text_of(k % 2 == 0 ? "all_reduce" : "all_gather", " #", k, " of world")) !=
              std::string::npos);
        CHECK(message.find("rank 1") != std::string::npos);
        // All but the last are found as a disagreement with what rank 1 does instead; the last by its end.
        CHECK((message.find("ranks disagree") == 0) == (k < 7));
        if (k == 7) CHECK(message.find("rank 1 never came") != std::string::npos);
    }
}

TEST_CASE("comm faulty: whichever operation a rank is killed in, the job ends and names both") {
    for (integer k = 0; k < 8; ++k)
        CHECK(end_with({.kill_at = k}) == text_of("rank 1: rank 1 was killed in ",
                                                  k % 2 == 0 ? "all_reduce" : "all_gather", ", its operation ", k));
}

}  // namespace
}  // namespace fathom
