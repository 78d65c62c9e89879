// The recorder's contents: which operations, where from, how many bytes, in which state; the last ones, totals of all.
#include <doctest/doctest.h>

#include <fathom/comm.hpp>
#include <string>
#include <vector>

namespace fathom {
namespace {

TEST_CASE("comm recorder: operations in order with kind, label, bytes and state") {
    comm::threads::run(2, [](comm::threads::communicator& ranks) {
        const integer peer = 1 - ranks.rank();
        std::vector<float> a(8), b(8);
        const std::vector<integer> counts{1, 3},
            other{counts[static_cast<std::size_t>(ranks.rank())], counts[static_cast<std::size_t>(ranks.rank())]},
            at{0, 4};
        const std::vector<comm::message> messages{comm::send_to(peer, a.data(), 5),
                                                  comm::receive_from(peer, b.data(), 5)};
        ranks.run(comm::all_reduce(a.data(), 8).from("norm"));
        ranks.run(comm::reduce_scatter(a.data(), b.data(), 4));
        ranks.run(comm::exchange(messages).from("pipeline"));
        ranks.run(comm::all_gather(b.data(), a.data(), 4));
        ranks.run(comm::all_to_all(a.data(), counts, at, b.data(), other, at));
        ranks.run(comm::broadcast(a.data(), 2, 1));
        {
            auto under_way = ranks.start(comm::barrier().from("last"));
            CHECK(ranks.recorder()[6].sequence == 5);  // the exchange is counted apart
            under_way.wait();
        }
        const comm::flight_recorder& seen = ranks.recorder();
        REQUIRE(seen.size() == 7);
        const char* kinds[] = {"all_reduce", "reduce_scatter", "exchange", "all_gather",
                               "all_to_all", "broadcast",      "barrier"};
        const integer bytes[] = {32, 32, 20, 32, 16, 8, 0};
        for (integer n = 0; n < 7; ++n) {
            CHECK(std::string{name_of(seen[n].kind)} == kinds[n]);
            CHECK(seen[n].bytes == bytes[n]);
            CHECK(seen[n].state == comm::record_state::done);
            CHECK(seen.bytes(seen[n].kind) == bytes[n]);
            CHECK(seen.calls(seen[n].kind) == 1);
        }
        CHECK(std::string{seen[0].label} == "norm");
        CHECK(std::string{seen[2].label} == "pipeline");
        CHECK(seen[2].sequence == 0);
        CHECK(seen[3].sequence == 2);
    });
}

TEST_CASE("comm recorder: an operation is issued until it is done") {
    comm::threads::run(2, [](comm::threads::communicator& ranks) {
        std::int64_t x = 1;
        comm::threads::communicator second = ranks.split(0, 0, "second");
        if (ranks.rank() == 1) ranks.run(comm::barrier());  // rank 0 looks before rank 1 comes
        auto under_way = second.start(comm::all_reduce(&x, 1));
        if (ranks.rank() == 0) {
            CHECK(second.recorder()[0].state == comm::record_state::issued);
            ranks.run(comm::barrier());
        }
        under_way.wait();
        CHECK(second.recorder()[0].state == comm::record_state::done);
    });
}

TEST_CASE("comm recorder: the last ones are kept, the totals count all") {
    comm::threads::run(1, [](comm::threads::communicator& ranks) {
        double x = 0;
        for (int n = 0; n < 1'000; ++n) ranks.run(comm::all_reduce(&x, 1));
        const comm::flight_recorder& seen = ranks.recorder();
        CHECK(seen.size() == static_cast<integer>(comm::flight_recorder::capacity));
        CHECK(seen[0].sequence == 1'000 - comm::flight_recorder::capacity);
        CHECK(seen[seen.size() - 1].sequence == 999);
        CHECK(seen.bytes(comm::operation::all_reduce) == 8'000);
        CHECK(seen.calls(comm::operation::all_reduce) == 1'000);
    });
}

}  // namespace
}  // namespace fathom
