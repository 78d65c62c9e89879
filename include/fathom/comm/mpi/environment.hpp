// MPI's beginning and end, for programs in which nobody else sees to them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fathom/comm/mpi/detail/transfer.hpp>
#include <fathom/comm/watchdog.hpp>
#include <mutex>
#include <thread>

namespace fathom::comm::mpi {

namespace detail {

/// Ends this process with a sentence if it lives longer than the start's limit: MPI's own start waits for all processes
/// and can be called back by nobody.
class start_limit {
  public:
    explicit start_limit(const watchdog& limit)
        : thread_([this, limit] {
              std::unique_lock lock{mutex_};
              if (over_.wait_for(lock, std::chrono::duration<double>(limit.start), [this] { return started_; })) return;
              const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
              std::fprintf(stderr,
                           "rank %s: start-up was not finished within %g s: ranks without such a line never came\n",
                           rank != nullptr ? rank : "?", limit.start);
              std::_Exit(1);
          }) {}
    start_limit(const start_limit&) = delete;
    start_limit& operator=(const start_limit&) = delete;
    ~start_limit() {
        {
            const std::lock_guard lock{mutex_};
            started_ = true;
        }
        over_.notify_one();
        thread_.join();
    }

  private:
    std::mutex mutex_;
    std::condition_variable over_;
    bool started_ = false;
    std::thread thread_;
};

}  // namespace detail

/// Starts MPI unless it runs already, and ends what it started. Communicators must be gone before. Fathom calls MPI
/// from one thread at a time.
class environment {
  public:
    explicit environment(const watchdog& limit = {}) {
        int running = 0, provided = 0;
        detail::check(MPI_Initialized(&running), "MPI_Initialized");
        if (running != 0) return;
        const detail::start_limit within{limit};
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
