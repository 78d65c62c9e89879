// Every collective over MPI, on as many processes as run this; and jobs with a fault, which end with a sentence.
#include <doctest/doctest.h>

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fathom/comm.hpp>
#include <fathom/mpi.hpp>
#include <fathom/nccl.hpp>
#include <string>
#include <vector>

#include "../unit/comm/every_collective.hpp"
#include "../unit/comm/fake_nccl.hpp"
#include "../unit/scratch_folder.hpp"

namespace fathom {
namespace {

using ranks_of_processes = comm::mpi::communicator;

ranks_of_processes& world() {
    static const comm::mpi::environment mpi;
    static ranks_of_processes all;
    return all;
}

TEST_CASE_TEMPLATE("mpi: all_reduce and reduce_scatter are the plain loop's bits", T, double, float, bf16, std::int64_t,
                   std::int32_t) {
    test::reductions<T>(world());
}
TEST_CASE_TEMPLATE("mpi: all_gather, broadcast and all_to_all", T, double, float, bf16, std::int64_t, std::int32_t,
                   std::byte) {
    test::gathers<T>(world());
    test::lengths<T>(world());
}
TEST_CASE("mpi: exchanges and handles in any order") {
    if (world().size() > 2) test::ring(world());
    if (world().size() == 2) test::groupings(world());
    if (world().size() > 1) test::orders(world());
}
TEST_CASE("mpi: a foreign communicator, and parts of it") {
    MPI_Comm foreign = MPI_COMM_NULL;
    world();
    const bool last = world().rank() == world().size() - 1;
    MPI_Comm_split(MPI_COMM_WORLD, 0, last ? -1 : static_cast<int>(world().rank()), &foreign);
    {
        ranks_of_processes ranks{foreign, {}, "foreign"};
        CHECK(ranks.size() == world().size());
        CHECK(ranks.rank() == (last ? 0 : world().rank() + 1));
        ranks_of_processes alone = ranks.split(-ranks.rank(), 0, "alone");
        CHECK(alone.size() == 1);
        std::int64_t one = 1;
        alone.run(comm::all_reduce(&one, 1));
        ranks.run(comm::all_reduce(&one, 1));
        CHECK(one == world().size());
    }
    MPI_Comm_free(&foreign);
}
TEST_CASE("mpi: delays and reordering by seed") {
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
        comm::faulty<ranks_of_processes> ranks{world().split(0, 0, "all"),
                                               {.seed = seed, .delay = 0.3, .reorder = 0.5}};
        test::orders(ranks);
    }
}
TEST_CASE("mpi: what other communicators promise holds here") {
    float x = 0;
    CHECK(test::message_of([&] { world().run(comm::broadcast(&x, 1, 99)); }) ==
          text_of("broadcast of world: the root is rank 99, expected one below ", world().size()));
    comm::mpi::communicator mine = world().split(0, 0, "recorded");
    std::vector<float> data(5'000);
    mine.run(comm::all_reduce(data.data(), 5'000).from("norm"));
    const comm::flight_record& last = mine.recorder()[mine.recorder().size() - 1];
    CHECK(last.bytes == 20'000);
    CHECK(last.state == comm::record_state::done);
    CHECK(mine.recorder().bytes(comm::operation::all_reduce) == 20'000);
}

/// NCCL's stand-in between processes: those that come with one id meet, over MPI.
namespace across {

MPI_Comm& at(void* comm) { return *static_cast<MPI_Comm*>(comm); }
int get_unique_id(comm::nccl::unique_id* id) {
    std::snprintf(id->bytes, sizeof id->bytes, "%d", static_cast<int>(::getpid()));  // no other process makes it
    return 0;
}
int init(void** made, int ranks, comm::nccl::unique_id id, int rank, comm::nccl::configuration*) {
    auto* mine = new MPI_Comm{MPI_COMM_NULL};
    MPI_Comm_split(MPI_COMM_WORLD, std::atoi(id.bytes), rank, mine);
    *made = mine;
    int size = 0, place = 0;
    MPI_Comm_size(*mine, &size);
    MPI_Comm_rank(*mine, &place);
    return size == ranks && place == rank ? 0 : test::fake::failed;
}
int split(void* comm, int colour, int key, void** made, comm::nccl::configuration*) {
    auto* mine = new MPI_Comm{MPI_COMM_NULL};
    *made = mine;
    return MPI_Comm_split(at(comm), colour, key, mine);
}
int destroy(void* comm) {
    MPI_Comm_free(&at(comm));
    delete &at(comm);
    return 0;
}
int count(void* comm, int* size) { return MPI_Comm_size(at(comm), size); }
int user_rank(void* comm, int* rank) { return MPI_Comm_rank(at(comm), rank); }
int all_reduce(const void* in, void* out, std::size_t n, int, int, void* comm, void*) {
    return MPI_Allreduce(in == out ? MPI_IN_PLACE : in, out, static_cast<int>(n), MPI_INT64_T, MPI_SUM, at(comm));
}

}  // namespace across

TEST_CASE("mpi: NCCL's communicator over processes, which pass its id on") {
    comm::nccl::functions calls = test::fake::calls();
    calls.nccl.get_unique_id = &across::get_unique_id;
    calls.nccl.init = &across::init;
    calls.nccl.split = &across::split;
    calls.nccl.destroy = calls.nccl.abort = &across::destroy;
    calls.nccl.count = &across::count;
    calls.nccl.user_rank = &across::user_rank;
    calls.nccl.all_reduce = &across::all_reduce;
    auto gpus = comm::nccl::communicator::over(world(), nullptr, {}, {}, calls);
    CHECK(gpus.rank() == world().rank());
    CHECK(gpus.size() == world().size());
    CHECK(std::string{gpus.name()} == world().name());
    const integer me = gpus.rank(), ranks = gpus.size();
    integer bits = integer{1} << me;
    gpus.run(comm::all_reduce(&bits, 1));
    CHECK(bits == (integer{1} << ranks) - 1);
    auto pair = gpus.split(me / 2, -me, "pair");
    const integer first = me / 2 * 2;
    CHECK(pair.size() == std::min(ranks - first, integer{2}));
    CHECK(pair.rank() == first + pair.size() - 1 - me);
    bits = integer{1} << me;
    pair.run(comm::all_reduce(&bits, 1));
    CHECK(bits == ((integer{1} << pair.size()) - 1) << first);
    pair.settle();
    gpus.settle();
}

/// Jobs that must not end well: rank 1 does what `fault` says, all others go on.
template <class Fault> void job(Fault&& fault, comm::watchdog limit = {}) {
    comm::mpi::run(
        [&](ranks_of_processes& ranks) {
            std::vector<float> data(10'000);
            ranks.run(comm::all_reduce(data.data(), 10'000).from("first"));
            if (ranks.rank() == 1) fault(ranks, data);
            ranks.run(comm::all_reduce(data.data(), 10'000).from("second"));
        },
        limit);
}
// Skipped where cases are run all together: run.py starts each of these as a job of its own, which must end badly.
TEST_SUITE("faults" * doctest::skip()) {
    TEST_CASE("stopped") {
        job([](auto&, auto&) { ::kill(::getpid(), SIGSTOP); }, {1});
    }
    TEST_CASE("stopped inside") {
        const auto fault = [](auto& ranks, auto& data) {
            auto under_way = ranks.start(comm::all_reduce(data.data(), 10'000).from("second"));
            ::kill(::getpid(), SIGSTOP);
        };
        job(fault, {1});
    }
    TEST_CASE("absent") {
        const comm::mpi::environment mpi;
        int rank = 0;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        if (rank == 1) ::kill(::getpid(), SIGSTOP);
        job([](auto&, auto&) {}, {.limit = 5, .start = 1});
    }
    TEST_CASE("never starts") {
        const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
        if (rank != nullptr && *rank == '1') ::kill(::getpid(), SIGSTOP);
        job([](auto&, auto&) {}, {.limit = 5, .start = 1});
    }
    TEST_CASE("throws") {
        job([](auto&, auto&) { fail("the disk is full"); });
    }
    TEST_CASE("disagrees") {
        job([](auto& ranks, auto& data) { ranks.run(comm::all_reduce(data.data(), 9'999).from("shorter")); });
    }
    TEST_CASE("killed") {
        job([](auto&, auto&) { ::kill(::getpid(), SIGKILL); }, {1});
    }
    TEST_CASE("never comes") {
        const auto fault = [](auto&, auto&) {
            for (;;) ::pause();
        };
        job(fault, {1});
    }
    TEST_CASE("forgets") {
        job([](auto& ranks, auto& data) {
            static_cast<void>(ranks.start(comm::all_reduce(data.data(), 10'000).from("forgotten")));
        });
    }
}

}  // namespace
}  // namespace fathom
