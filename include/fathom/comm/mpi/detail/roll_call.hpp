// Which processes of a job have come, found before MPI's first collective, which would wait for them without end.
#pragma once

#include <fathom/comm/mpi/detail/transfer.hpp>
#include <fathom/comm/watchdog.hpp>
#include <fathom/core/seconds_now.hpp>
#include <thread>
#include <vector>

namespace fathom::comm::mpi::detail {

/// Every process tells every other that it is here. Errors: some did not within the start's limit; names them.
inline void roll_call(const watchdog& limit) {
    constexpr int tag = 32'000;
    int rank = 0, size = 1;
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
    check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
    std::vector<transfer> said, heard;
    for (integer n = 1; n < size; ++n) {
        const integer peer = (rank + n) % size;
        heard.push_back({MPI_REQUEST_NULL, peer, true});
        check(MPI_Irecv(nullptr, 0, MPI_BYTE, static_cast<int>(peer), tag, MPI_COMM_WORLD, &heard.back().handle),
              "MPI_Irecv");
        said.push_back({MPI_REQUEST_NULL, peer, false});
        check(MPI_Isend(nullptr, 0, MPI_BYTE, static_cast<int>(peer), tag, MPI_COMM_WORLD, &said.back().handle),
              "MPI_Isend");
    }
    const double began = seconds_now();
    while (!finished(heard)) {
        if (seconds_now() - began >= limit.start) {
            std::vector<integer> absent;
            for (const transfer& each : heard) absent.push_back(each.peer);
            fail(watchdog::report(text_of("start-up was not finished within ", limit.start, " s"), absent, {}));
        }
        std::this_thread::yield();
    }
    while (!finished(said)) std::this_thread::yield();
}

}  // namespace fathom::comm::mpi::detail
