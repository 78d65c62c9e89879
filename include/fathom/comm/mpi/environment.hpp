// MPI's beginning and end, for programs in which nobody else sees to them.
#pragma once

#include <cstdlib>
#include <fathom/comm/mpi/detail/transfer.hpp>

namespace fathom::comm::mpi {

/// Starts MPI unless it runs already, and ends what it started. Communicators must be gone before. Fathom calls MPI
/// from one thread at a time.
class environment {
  public:
    environment() {
        int running = 0, provided = 0;
        detail::check(MPI_Initialized(&running), "MPI_Initialized");
        if (running != 0) return;
        detail::check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
        ours_ = true;
    }
    environment(const environment&) = delete;
    environment& operator=(const environment&) = delete;
    ~environment() {
        if (ours_) MPI_Finalize();
    }

    /// How many processes of the job share this machine. All of them ask together.
    [[nodiscard]] static integer neighbours() {
        MPI_Comm here = MPI_COMM_NULL;
        int size = 0;
        detail::check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here),
                      "MPI_Comm_split_type");
        detail::check(MPI_Comm_size(here, &size), "MPI_Comm_size");
        detail::check(MPI_Comm_free(&here), "MPI_Comm_free");
        return size;
    }
    /// Ends all processes of the job: how a rank that failed frees those that wait for it.
    [[noreturn]] static void end_all(int status) {
        MPI_Abort(MPI_COMM_WORLD, status);
        std::abort();
    }

  private:
    bool ours_ = false;
};

}  // namespace fathom::comm::mpi
