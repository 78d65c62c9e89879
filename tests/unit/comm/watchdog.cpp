// What hangs ends within its limit and names ranks and operations; what disagrees is named at once.
#include <doctest/doctest.h>

#include <atomic>
#include <fathom/comm.hpp>
#include <functional>
#include <string>
#include <vector>

#include "../scratch_folder.hpp"

namespace fathom {
namespace {

using comm::threads::communicator;
using test::message_of;

constexpr comm::watchdog soon{0.2};
/// Of cases that must end long before: a hang of the test program would be the failure.
constexpr comm::watchdog never{300};

std::string end_of(integer ranks, const std::function<void(communicator&)>& body, comm::watchdog limit) {
    return message_of([&] { comm::threads::run(ranks, body, limit); });
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("comm watchdog: a rank that never comes is named, with all that wait and where") {
    std::atomic<int> waiting{2};
    const std::string message = end_of(
        3,
        [&](communicator& ranks) {
            communicator tp = ranks.split(0, 0, "tp");
            std::int64_t x = 1;
            tp.run(comm::all_reduce(&x, 1).from("first"));
            if (ranks.rank() == 1) {
                for (int left; (left = waiting.load()) > 0;) waiting.wait(left);
                return;
            }
            const std::string theirs = message_of([&] { tp.run(comm::all_reduce(&x, 1).from("second")); });
            --waiting;
            waiting.notify_all();
            fail(theirs);
        },
        soon);
    CHECK(has(message, "all_reduce #1 of tp (second) was not finished within 0.2 s: rank 1 never came"));
    CHECK(has(message, "rank 0 waits in all_reduce #1 of tp (second)"));
    CHECK(has(message, "rank 1 is not in an operation, last in all_reduce #0 of tp (first)"));
    CHECK(has(message, "rank 2 waits in all_reduce #1 of tp (second)"));
}

TEST_CASE("comm watchdog: a rank that ended will never come, which is said at once") {
    const std::string message = end_of(
        3,
        [](communicator& ranks) {
            std::int64_t x = 1;
            ranks.run(comm::all_reduce(&x, 1));
            if (ranks.rank() != 1) ranks.run(comm::all_reduce(&x, 1).from("second"));
        },
        never);
    CHECK(has(message, "all_reduce #1 of world (second) cannot be finished: rank 1 never came"));
    CHECK(has(message, "rank 1 has ended, last in all_reduce #0 of world"));
    const std::string ring = end_of(
        2,
        [](communicator& ranks) {
            float x = 0;
            const std::vector<comm::message> messages{comm::receive_from(0, &x, 1)};
            if (ranks.rank() == 1) ranks.run(comm::exchange(messages));
        },
        never);
    CHECK(has(ring, "exchange #0 of world cannot be finished: rank 0 never came"));
    CHECK(has(ring, "rank 0 has ended, never was in one"));
}

TEST_CASE("comm watchdog: communicators in different orders, blocking: both waits are named") {
    const std::string message = end_of(
        2,
        [](communicator& ranks) {
            communicator a = ranks.split(0, 0, "a"), b = ranks.split(0, 0, "b");
            (ranks.rank() == 0 ? a : b).run(comm::barrier());
            (ranks.rank() == 0 ? b : a).run(comm::barrier());
        },
        soon);
    CHECK(has(message, "rank 0 waits in barrier #0 of a"));
    CHECK(has(message, "rank 1 waits in barrier #0 of b"));
}

TEST_CASE("comm watchdog: sends that need a buffer end the job, as an exchange they do not") {
    const auto body = [](communicator& ranks) {
        const float out = 1;
        float in = 0;
        const integer peer = 1 - ranks.rank();
        const std::vector<comm::message> send{comm::send_to(peer, &out, 1)}, receive{comm::receive_from(peer, &in, 1)};
        ranks.run(comm::exchange(send).from("forward"));
        ranks.run(comm::exchange(receive).from("forward"));
    };
    const std::string message = end_of(2, body, soon);
    CHECK(has(message, "exchange #0 of world (forward) was not finished within 0.2 s"));
    CHECK(has(message, "rank 0 waits in exchange #0 of world (forward)"));
    CHECK(has(message, "rank 1 waits in exchange #0 of world (forward)"));
}

TEST_CASE("comm watchdog: a rank that came and does not move its data") {
    std::atomic<bool> came{false}, gave_up{false};
    const std::string message = end_of(
        2,
        [&](communicator& ranks) {
            std::int64_t x = 1;
            if (ranks.rank() == 0) came.wait(false);
            auto under_way = ranks.start(comm::all_reduce(&x, 1));
            if (ranks.rank() == 1) {
                came = true;
                came.notify_one();
                return gave_up.wait(false);
            }
            const std::string theirs = message_of([&] { under_way.wait(); });
            gave_up = true;
            gave_up.notify_one();
            fail(theirs);
        },
        soon);
    CHECK(has(message, "all ranks came, not all moved their data"));
    CHECK(has(message, "rank 1 is not in an operation, last in all_reduce #0 of world"));
}

TEST_CASE("comm watchdog: calls that disagree are named at once") {
    float x[8] = {};
    bf16 y[4] = {};
    const auto two = [&](const comm::request& first, const comm::request& second) {
        return end_of(
            2, [&](communicator& ranks) { ranks.run(ranks.rank() == 0 ? first : second); }, never);
    };
    std::string message = two(comm::all_reduce(x, 4).from("norm"), comm::all_gather(x, x + 4, 1).from("weights"));
    CHECK(has(message, "ranks disagree: "));
    CHECK(has(message, " is in all_reduce #0 of world (norm)"));
    CHECK(has(message, " is in all_gather #0 of world (weights)"));
    message = two(comm::all_reduce(x, 4), comm::all_reduce(x, 3));
    CHECK(has(message, "has 16 bytes"));
    CHECK(has(message, "has 12"));
    message = two(comm::all_reduce(x, 4), comm::all_reduce(y, 4));
    CHECK(has(message, "has fp32"));
    CHECK(has(message, "has bf16"));
    message = two(comm::all_reduce(x, 4), comm::all_reduce(x, 4, comm::reduction::max));
    CHECK(has(message, "asks for the sum"));
    CHECK(has(message, "asks for the maximum"));
    message = two(comm::broadcast(x, 4, 0), comm::broadcast(x, 4, 1));
    CHECK(has(message, "has root 0"));
    CHECK(has(message, "has root 1"));
    // Two are enough, though a third never comes.
    std::atomic<bool> over{false};
    message = end_of(
        3,
        [&](communicator& ranks) {
            if (ranks.rank() == 1) return over.wait(false);
            const std::string theirs = message_of([&] { ranks.run(comm::all_reduce(x, ranks.rank() == 0 ? 4 : 3)); });
            over = true;
            over.notify_all();
            fail(theirs);
        },
        never);
    CHECK(has(message, "has 16 bytes"));
}

TEST_CASE("comm watchdog: lengths of all_to_all and messages that disagree are named at once") {
    std::string message = end_of(
        2,
        [](communicator& ranks) {
            const std::vector<float> out(8);
            std::vector<float> in(8);
            const std::vector<integer> send{1, 2}, at{0, 4};
            const std::vector<integer> expects =
                ranks.rank() == 0 ? std::vector<integer>{1, 1} : std::vector<integer>{3, 2};
            ranks.run(comm::all_to_all(out.data(), send, at, in.data(), expects, at).from("dispatch"));
        },
        never);
    CHECK(has(message, "all_to_all #0 of world (dispatch)"));
    CHECK(has(message, "sends 8 bytes"));
    CHECK(has(message, "expects 12"));
    message = end_of(
        2,
        [](communicator& ranks) {
            double x[4] = {};
            const std::vector<comm::message> messages{ranks.rank() == 0 ? comm::send_to(1, x, 4)
                                                                        : comm::receive_from(0, x, 3)};
            ranks.run(comm::exchange(messages).from(ranks.rank() == 0 ? "there" : "here"));
        },
        never);
    CHECK(message ==
          "ranks disagree: rank 0 sends 32 bytes (fp64) in exchange #0 of world (there), rank 1 expects 24 (fp64) in "
          "exchange #0 of world (here)");
}

}  // namespace
}  // namespace fathom
