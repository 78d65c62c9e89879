// A function run as one of the processes of an MPI job, which end together: with the first error, or well.
#pragma once

#include <chrono>
#include <cstdio>
#include <exception>
#include <fathom/comm/mpi/communicator.hpp>
#include <fathom/comm/mpi/detail/roll_call.hpp>
#include <fathom/comm/mpi/environment.hpp>
#include <thread>

namespace fathom::comm::mpi {

/// Starts MPI, calls body(communicator of all processes) and ends MPI. A rank that throws cannot take part in that end:
/// it writes its rank and the text to standard error and a second later ends all processes, whose exit status the
/// launcher makes known. Processes that do not come within the limit of the start end the job, too.
template <class Body> void run(Body&& body, watchdog limit = {}) {
    const environment mpi{limit};
    int rank = 0;
    detail::check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
    try {
        detail::roll_call(limit);
        communicator all{MPI_COMM_WORLD, limit};
        body(all);
        return;
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "rank %d: %s\n", rank, problem.what());
    } catch (...) {
        std::fprintf(stderr, "rank %d: an exception without a text\n", rank);
    }
    std::fflush(stderr);
    // At a time limit the first to speak may have waited for one that waits itself: the others speak, too.
    std::this_thread::sleep_for(std::chrono::seconds{1});
    environment::end_all(1);
}

}  // namespace fathom::comm::mpi
