// Ranks of one process end together: the first error, with its rank, whatever the others are in.
#include <doctest/doctest.h>

#include <atomic>
#include <fathom/comm.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "../scratch_folder.hpp"

namespace fathom {
namespace {

using test::message_of;

TEST_CASE("comm run: every rank once, each with its number") {
    std::vector<int> came(8);
    comm::threads::run(8, [&](comm::threads::communicator& ranks) {
        CHECK(ranks.size() == 8);
        CHECK(std::string{ranks.name()} == "world");
        ++came[static_cast<std::size_t>(ranks.rank())];
    });
    CHECK(came == std::vector<int>(8, 1));
    CHECK(message_of([] { comm::threads::run(0, [](auto&) {}); }) == "a group of 0 ranks, expected one or more");
}

TEST_CASE("comm run: a rank that throws ends the others, which say who died of what") {
    for (integer dies = 0; dies < 4; ++dies) {
        std::atomic<int> heard{0};
        const std::string message = message_of([&] {
            comm::threads::run(4, [&](comm::threads::communicator& ranks) {
                std::vector<float> data(1'000);
                ranks.run(comm::all_reduce(data.data(), 1'000));
                if (ranks.rank() == dies) throw std::runtime_error{"the disk is full"};
                const std::string theirs =
                    message_of([&] { ranks.run(comm::all_reduce(data.data(), 1'000).from("gradients")); });
                if (theirs == text_of("rank ", dies, ": the disk is full")) ++heard;
                fail(theirs);
            });
        });
        CHECK(message == text_of("rank ", dies, ": the disk is full"));
        CHECK(heard == 3);
    }
}

TEST_CASE("comm run: a rank dies with operations under way, and nobody reads its memory afterwards") {
    for (int round = 0; round < 100; ++round) {
        const std::string message = message_of([&] {
            comm::threads::run(3, [&](comm::threads::communicator& ranks) {
                for (int n = 0;; ++n) {
                    std::vector<double> data(2'000, 1.0);
                    auto under_way = ranks.start(comm::all_reduce(data.data(), 2'000));
                    if (ranks.rank() == 1 && n == round % 5) fail("enough");
                    under_way.wait();
                    CHECK(data[1'999] == 3.0);
                }
            });
        });
        CHECK(message == "rank 1: enough");
    }
}

TEST_CASE("comm run: a handle that dies unfinished ends the job and says which") {
    const std::string message = message_of([] {
        comm::threads::run(2, [](comm::threads::communicator& ranks) {
            std::int64_t x = 1;
            if (ranks.rank() == 1)
                static_cast<void>(ranks.start(comm::all_reduce(&x, 1).from("forgotten")));
            else
                ranks.run(comm::barrier());
            ranks.run(comm::barrier());
        });
    });
    CHECK((message == "rank 1 left all_reduce #0 of world (forgotten) unfinished" ||
           message.find("ranks disagree") != std::string::npos));
    const std::string alone = message_of([] {
        comm::threads::run(2, [](comm::threads::communicator& ranks) {
            if (ranks.rank() == 1) static_cast<void>(ranks.start(comm::barrier().from("forgotten")));
        });
    });
    CHECK(alone == "rank 1 left barrier #0 of world (forgotten) unfinished");
}

TEST_CASE("comm run: an exception without a text is thrown as it is") {
    bool caught = false;
    try {
        comm::threads::run(2, [](comm::threads::communicator& ranks) {
            if (ranks.rank() == 1) throw 42;
            ranks.run(comm::barrier());
        });
    } catch (int number) {
        caught = number == 42;
    }
    CHECK(caught);
}

TEST_CASE("comm run: a request that cannot be is refused before anybody comes") {
    comm::threads::run(2, [](comm::threads::communicator& ranks) {
        float x = 0;
        const std::vector<integer> one{1}, two{1, 1}, negative{1, -1};
        const std::vector<comm::message> far{comm::send_to(2, &x, 1)}, few{comm::send_to(1, &x, -1)};
        CHECK(message_of([&] { ranks.run(comm::all_reduce(&x, -1).from("norm")); }) ==
              "all_reduce of world at norm: a count of -1 elements, expected none or more");
        CHECK(message_of([&] { ranks.run(comm::broadcast(&x, 1, 2)); }) ==
              "broadcast of world: the root is rank 2, expected one below 2");
        CHECK(message_of([&] { ranks.run(comm::all_to_all(&x, one, two, &x, two, two)); }) ==
              "all_to_all of world: a list of 1 counts or offsets, expected one entry for each of 2 ranks");
        CHECK(message_of([&] { ranks.run(comm::all_to_all(&x, two, negative, &x, two, two)); }) ==
              "all_to_all of world: a count or offset of -1, expected none below zero");
        CHECK(message_of([&] { ranks.run(comm::exchange(far)); }) ==
              "exchange of world: a message for rank 2, expected one below 2");
        CHECK(message_of([&] { ranks.run(comm::exchange(few)); }) ==
              "exchange of world: a message of -1 elements, expected none or more");
        ranks.run(comm::all_reduce(&x, 1));  // and nothing is broken
    });
}

}  // namespace
}  // namespace fathom
