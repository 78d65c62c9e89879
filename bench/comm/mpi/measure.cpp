// Times every operation between ranks, on threads and over MPI, in turn with the plain MPI call and with a plain copy
// of as many bytes: what bench/comm.py reads, one line of JSON a size.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fathom/comm.hpp>
#include <fathom/mpi.hpp>
#include <string>
#include <vector>

namespace fathom::bench {

using comm::operation;

/// Buffers of one rank, in numbers of its larger side.
struct buffers {
    std::vector<float> in, out;
    explicit buffers(integer count) : in(static_cast<std::size_t>(count), 1), out(in) {}
};

/// What a rank asks for: `bytes` is the larger side of its buffers.
comm::request request_of(operation kind, integer rank, integer ranks, buffers& of, std::vector<comm::message>& ring) {
    const auto count = static_cast<integer>(of.in.size()), part = count / ranks;
    float *in = of.in.data(), *out = of.out.data();
    switch (kind) {
        case operation::all_reduce:
            return comm::all_reduce(in, count);
        case operation::reduce_scatter:
            return comm::reduce_scatter(in, out, part);
        case operation::all_gather:
            return comm::all_gather(in, out, part);
        case operation::all_to_all:
            return comm::all_to_all(in, out, part);
        case operation::broadcast:
            return comm::broadcast(in, count);
        case operation::exchange:
            ring = {comm::send_to((rank + 1) % ranks, in, count),
                    comm::receive_from((rank + ranks - 1) % ranks, out, count)};
            return comm::exchange(ring);
        case operation::barrier:
            break;
    }
    return comm::barrier();
}
void plain(operation kind, int rank, int ranks, buffers& of) {
    const int count = static_cast<int>(of.in.size()), part = count / ranks;
    float *in = of.in.data(), *out = of.out.data();
    switch (kind) {
        case operation::all_reduce:
            MPI_Allreduce(MPI_IN_PLACE, in, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            break;
        case operation::reduce_scatter:
            MPI_Reduce_scatter_block(in, out, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            break;
        case operation::all_gather:
            MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
            break;
        case operation::all_to_all:
            MPI_Alltoall(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
            break;
        case operation::broadcast:
            MPI_Bcast(in, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
            break;
        case operation::exchange:
            MPI_Sendrecv(in, count, MPI_FLOAT, (rank + 1) % ranks, 0, out, count, MPI_FLOAT, (rank + ranks - 1) % ranks,
                         0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            break;
        case operation::barrier:
            MPI_Barrier(MPI_COMM_WORLD);
            break;
    }
}
/// Bytes that a rank must at least read and write, of buffers of so many bytes, as a share of those that a copy of the
/// buffer does: the operation's distance from the memory's speed.
double share_of_copy(operation kind, integer ranks) {
    const double part = 1.0 / static_cast<double>(ranks);
    return kind == operation::reduce_scatter ? (1 + part) / 2 : 1;
}

/// Seconds a call: `meet` is called before and after `calls` calls, behind one that is not counted.
template <class Meet, class Call> double seconds_of(integer calls, Meet&& meet, Call&& call) {
    call();
    meet();
    const double began = seconds_now();
    for (integer n = 0; n < calls; ++n) call();
    meet();
    return (seconds_now() - began) / static_cast<double>(calls);
}

/// Waits as MPI's own barrier does not: without taking the processor from a rank that measures threads.
void meet_quietly() {
    MPI_Request all = MPI_REQUEST_NULL;
    MPI_Ibarrier(MPI_COMM_WORLD, &all);
    for (int done = 0; MPI_Test(&all, &done, MPI_STATUS_IGNORE), done == 0;) ::usleep(500);
}

std::string list_of(const std::vector<double>& seconds) {
    std::string text;
    for (const double s : seconds) {
        char number[32];
        std::snprintf(number, sizeof number, "%s%.4g", text.empty() ? "" : ", ", s);
        text += number;
    }
    return '[' + text + ']';
}

void measure(comm::mpi::communicator& world, operation kind, integer bytes, int rounds) {
    const integer ranks = world.size(), rank = world.rank();
    const integer count = round_up(pieces(bytes, 4), ranks);
    const integer calls = std::clamp((integer{16} << 20) / std::max(bytes, integer{1}), integer{1}, integer{500});
    const auto meet = [] { MPI_Barrier(MPI_COMM_WORLD); };
    std::vector<double> by_mpi, by_plain, by_threads, by_copy;
    for (int round = 0; round < rounds; ++round) {
        {
            buffers mine{count};
            std::vector<comm::message> ring;
            const comm::request what = request_of(kind, rank, ranks, mine, ring);
            by_plain.push_back(
                seconds_of(calls, meet, [&] { plain(kind, static_cast<int>(rank), static_cast<int>(ranks), mine); }));
            by_mpi.push_back(seconds_of(calls, meet, [&] { world.run(what); }));
        }
        meet_quietly();
        if (rank == 0)
            comm::threads::run(ranks, [&](comm::threads::communicator& here) {
                buffers mine{count};
                std::vector<comm::message> ring;
                const comm::request what = request_of(kind, here.rank(), ranks, mine, ring);
                const auto meet_threads = [&] { here.run(comm::barrier()); };
                const double seconds = seconds_of(calls, meet_threads, [&] { here.run(what); });
                const double copy = seconds_of(calls, meet_threads, [&] {
                    std::memcpy(mine.out.data(), mine.in.data(), mine.in.size() * sizeof(float));
                });
                if (here.rank() != 0) return;
                by_threads.push_back(seconds);
                by_copy.push_back(copy * share_of_copy(kind, ranks));
            });
        meet_quietly();
    }
    if (rank != 0) return;
    std::printf("{\"operation\": \"%s\", \"bytes\": %lld, \"threads\": %s, \"copy\": %s, \"mpi\": %s, \"plain\": %s}\n",
                comm::name_of(kind), static_cast<long long>(count * 4), list_of(by_threads).c_str(),
                list_of(by_copy).c_str(), list_of(by_mpi).c_str(), list_of(by_plain).c_str());
    std::fflush(stdout);
}

}  // namespace fathom::bench

int main(int argc, char** argv) {
    using namespace fathom;
    const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 5;
    comm::mpi::run([&](comm::mpi::communicator& world) {
        bench::measure(world, comm::operation::barrier, 0, rounds);
        for (const auto kind :
             {comm::operation::all_reduce, comm::operation::reduce_scatter, comm::operation::all_gather,
              comm::operation::all_to_all, comm::operation::broadcast, comm::operation::exchange})
            for (const integer bytes : {1_KiB, 16_KiB, 256_KiB, 4_MiB, 64_MiB})
                bench::measure(world, kind, bytes, rounds);
    });
}
