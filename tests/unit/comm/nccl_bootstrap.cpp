// Ranks of GPUs read their places from launchers' variables and meet over TCP; those that are absent are named.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fathom/comm/nccl/bootstrap.hpp>
#include <fathom/comm/threads/run.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fathom {
namespace {

using namespace comm::nccl;

constexpr const char* names[] = {
    "RANK",         "WORLD_SIZE",   "LOCAL_RANK",    "MASTER_ADDR",         "MASTER_PORT",
    "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_NODELIST", "SLURM_JOB_ID"};

/// The place that these variables tell, and no others.
place told(std::vector<std::pair<const char*, const char*>> variables) {
    for (const char* const name : names) unsetenv(name);
    for (const auto& [name, value] : variables) setenv(name, value, 1);
    struct afterwards {
        ~afterwards() {
            for (const char* const name : names) unsetenv(name);
        }
    } const cleaned{};
    return place_from_environment();
}

template <class Body> std::string said(Body&& body) {
    try {
        body();
    } catch (const error& problem) {
        return problem.what();
    }
    return "nothing";
}

/// What is wrong with a rank's meeting.
std::string joins(const place& me, const comm::watchdog& limit) {
    return said([&] { static_cast<void>(meet(me, {}, limit)); });
}

/// A port that was free a moment ago.
integer free_port() {
    const comm::nccl::detail::socket_owner any{socket(AF_INET, SOCK_STREAM, 0)};
    sockaddr_in at{};
    at.sin_family = AF_INET;
    socklen_t size = sizeof at;
    REQUIRE(bind(any.get(), reinterpret_cast<const sockaddr*>(&at), size) == 0);
    REQUIRE(getsockname(any.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
    return ntohs(at.sin_port);
}

}  // namespace

TEST_CASE("nccl bootstrap: torchrun's variables") {
    const place at = told(
        {{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29400"}});
    CHECK(at.rank == 5);
    CHECK(at.size == 8);
    CHECK(at.local_rank == 1);
    CHECK(at.address == "node1");
    CHECK(at.port == 29401);
    CHECK(told({}).size == 1);
    CHECK(said([] {
              told({{"RANK", "0"}});
          }) == "the environment has no WORLD_SIZE, expected it beside torchrun's other variables");
    CHECK(said([] {
              told({{"RANK", "8"}, {"WORLD_SIZE", "8"}});
          }) == "the environment has RANK=8, expected a number from 0 to 7");
    CHECK(said([] {
              told({{"RANK", "0"}, {"WORLD_SIZE", "two"}});
          }) == "the environment has WORLD_SIZE=two, expected a number from 1 to 16777216");
}

TEST_CASE("nccl bootstrap: Slurm's variables") {
    const place at = told({{"SLURM_PROCID", "9"},
                           {"SLURM_NTASKS", "16"},
                           {"SLURM_LOCALID", "1"},
                           {"SLURM_STEP_NODELIST", "gpu[007-009,12]"},
                           {"SLURM_JOB_ID", "123456"}});
    CHECK(at.rank == 9);
    CHECK(at.size == 16);
    CHECK(at.local_rank == 1);
    CHECK(at.address == "gpu007");
    CHECK(at.port == 29957);
    CHECK(comm::nccl::detail::first_machine("gpu1,gpu2") == "gpu1");
    CHECK(comm::nccl::detail::first_machine("gpu1") == "gpu1");
    CHECK(comm::nccl::detail::first_machine("gpu[3,7]") == "gpu3");
    CHECK(said([] {
              told({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}});
          }) == "the environment has no SLURM_STEP_NODELIST, expected it beside Slurm's other variables");
}

TEST_CASE("nccl bootstrap: all ranks get rank 0's id") {
    const integer port = free_port();
    comm::threads::run(4, [&](auto& ranks) {
        const place me{.rank = ranks.rank(), .size = 4, .port = port};
        unique_id mine{};
        if (me.rank == 0) mine.bytes[0] = mine.bytes[127] = 'x';
        const unique_id got = meet(me, mine, {.start = 60});
        CHECK(got.bytes[0] == 'x');
        CHECK(got.bytes[127] == 'x');
    });
    CHECK(meet(place{}, unique_id{{'y'}}).bytes[0] == 'y');
}

TEST_CASE("nccl bootstrap: absent ranks are named, and strangers do not count") {
    const integer port = free_port();
    const comm::watchdog limit{.start = 1};
    std::string at_0, at_2;
    {
        const std::jthread second{[&] { joins({.rank = 2, .size = 4, .port = port}, {.start = 60}); }};
        const std::jthread stranger{[&] {
            const comm::nccl::detail::socket_owner other{socket(AF_INET, SOCK_STREAM, 0)};
            sockaddr_in to{};
            to.sin_family = AF_INET;
            to.sin_port = htons(static_cast<std::uint16_t>(port));
            to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            while (connect(other.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) usleep(1000);
            comm::nccl::detail::send_all(other.get(), "GET / HTTP/1.1\r\nHost: here\r\n\r\n", 30);
        }};
        at_0 = joins({.rank = 0, .size = 4, .port = port}, limit);
    }
    CHECK(at_0 == "rank 0: start-up was not finished within 1 s: ranks 1 3 never came");
    CHECK(joins({.rank = 1, .size = 2, .port = port}, {.start = 0.05}) ==
          text_of("rank 1: start-up was not finished within 0.05 s: rank 0 gave no id at 127.0.0.1 port ", port));
    CHECK(joins({.rank = 1, .size = 2, .address = "::1"}, limit)
              .starts_with("rank 1: the address of rank 0 is ::1: found "));
}

TEST_CASE("nccl bootstrap: ranks of another job, a rank twice, a port that is taken") {
    const integer port = free_port();
    const place first{.rank = 0, .size = 3, .port = port};
    const auto beside = [&](std::vector<place> others) {
        std::vector<std::jthread> threads;
        for (const place& one : others) threads.emplace_back([one] { joins(one, {.start = 1}); });
        return joins(first, {.start = 60});
    };
    CHECK(beside({{.rank = 1, .size = 8, .port = port}}) ==
          text_of("rank 0: rank 1 of 8 came to port ", port, ", expected ranks 1 to 2 of 3"));
    CHECK(beside({{.rank = 1, .size = 3, .port = port}, {.rank = 1, .size = 3, .port = port}}) ==
          "rank 0: two processes say that they are rank 1, expected one");
    const comm::nccl::detail::socket_owner taken{socket(AF_INET, SOCK_STREAM, 0)};
    sockaddr_in at{};
    at.sin_family = AF_INET;
    socklen_t size = sizeof at;
    REQUIRE(bind(taken.get(), reinterpret_cast<const sockaddr*>(&at), size) == 0);
    REQUIRE(listen(taken.get(), 1) == 0);
    REQUIRE(getsockname(taken.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
    const integer used = ntohs(at.sin_port);
    CHECK(joins({.rank = 0, .size = 2, .port = used}, {.start = 1}) ==
          text_of("rank 0: port ", used, " cannot be listened on: found Address already in use, expected a free port ",
                  "(MASTER_PORT is the one before it)"));
}

}  // namespace fathom
