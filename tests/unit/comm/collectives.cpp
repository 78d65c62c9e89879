// Every collective on thread ranks: all formats, odd and empty sizes, the same bits on all ranks.
#include <doctest/doctest.h>

#include <atomic>
#include <fathom/comm.hpp>
#include <limits>
#include <string>
#include <vector>

#include "every_collective.hpp"

namespace fathom {
namespace {

using ranks_of_threads = comm::threads::communicator;
const std::vector<integer> rank_counts{1, 2, 3, 4, 8};

TEST_CASE_TEMPLATE("comm: all_reduce and reduce_scatter are the plain loop's bits", T, double, float, bf16,
                   std::int64_t, std::int32_t) {
    for (const integer n : rank_counts) comm::threads::run(n, test::reductions<T, ranks_of_threads>);
}

TEST_CASE_TEMPLATE("comm: all_gather and broadcast bring every rank's numbers", T, double, float, bf16, std::int64_t,
                   std::int32_t, std::byte) {
    for (const integer n : rank_counts) comm::threads::run(n, test::gathers<T, ranks_of_threads>);
}

TEST_CASE_TEMPLATE("comm: all_to_all with lengths known at run time, none for some", T, double, float, bf16,
                   std::int64_t, std::int32_t, std::byte) {
    for (const integer n : rank_counts) comm::threads::run(n, test::lengths<T, ranks_of_threads>);
}

TEST_CASE("comm: an exchange of a ring in both directions, several messages a pair, and with oneself") {
    for (const integer n : {3, 4, 8}) comm::threads::run(n, test::ring<ranks_of_threads>);
    comm::threads::run(1, [](comm::threads::communicator& ranks) {
        const float out = 3;
        float in = 0;
        const std::vector<comm::message> messages{comm::receive_from(0, &in, 1), comm::send_to(0, &out, 1)};
        ranks.run(comm::exchange(messages));
        CHECK(in == 3);
    });
}

TEST_CASE("comm: groupings of messages may differ between the two sides") {
    comm::threads::run(2, test::groupings<ranks_of_threads>);
}

TEST_CASE("comm: handles are waited for in any order, of two communicators too, and more than the ring holds") {
    for (const integer n : {2, 3, 4}) comm::threads::run(n, test::orders<ranks_of_threads>);
}

TEST_CASE("comm: split makes a mesh's axes") {
    comm::threads::run(8, [](comm::threads::communicator& ranks) {
        const integer me = ranks.rank();
        comm::threads::communicator rows = ranks.split(me / 4, me, "rows"),
                                    columns = ranks.split(me % 4, me, "columns");
        CHECK(rows.size() == 4);
        CHECK(rows.rank() == me % 4);
        CHECK(columns.size() == 2);
        CHECK(columns.rank() == me / 4);
        CHECK(std::string{columns.name()} == "columns");
        std::int32_t sum = static_cast<std::int32_t>(me), of_pair = sum;
        rows.run(comm::all_reduce(&sum, 1));
        columns.run(comm::all_reduce(&of_pair, 1));
        CHECK(sum == (me < 4 ? 6 : 22));
        CHECK(of_pair == 2 * (me % 4) + 4);
        comm::threads::communicator pair = rows.split(me % 4 / 2, 0, "pairs");
        CHECK(pair.size() == 2);
        pair.run(comm::barrier());
    });
}

TEST_CASE("comm: a barrier is passed by nobody before all came") {
    std::atomic<int> came{0};
    comm::threads::run(4, [&](comm::threads::communicator& ranks) {
        for (int round = 1; round <= 200; ++round) {
            ++came;
            ranks.run(comm::barrier());
            CHECK(came >= 4 * round);
            ranks.run(comm::barrier());
        }
    });
}

TEST_CASE("comm: a maximum over a NaN is a NaN, wherever it stands") {
    for (const integer who : {0, 1, 2}) {
        comm::threads::run(3, [&](comm::threads::communicator& ranks) {
            float x = ranks.rank() == who ? std::numeric_limits<float>::quiet_NaN() : 1.0f;
            ranks.run(comm::all_reduce(&x, 1, comm::reduction::max));
            CHECK(x != x);
        });
    }
}

}  // namespace
}  // namespace fathom
