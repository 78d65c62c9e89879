// A few threads for one job over a text: an exception in any of them reaches the caller.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace fathom::detail {

/// Calls job(i) for 0 <= i < count, each once, from up to `workers` threads (the caller is one of them), and waits.
/// Throws the exception of the lowest i that threw.
template <class Job> void run_workers(std::size_t count, std::size_t workers, const Job& job) {
    std::atomic<std::size_t> next = 0;
    std::mutex guard;
    std::exception_ptr error;
    std::size_t failed = count;
    const auto work = [&] {
        for (std::size_t i; (i = next++) < count;) {
            try {
                job(i);
            } catch (...) {
                const std::lock_guard lock{guard};
                if (i < failed) {
                    failed = i;
                    error = std::current_exception();
                }
            }
        }
    };
    {
        std::vector<std::jthread> threads;
        for (std::size_t i = 1; i < workers && i < count; ++i) threads.emplace_back(work);
        work();
    }
    if (error) std::rethrow_exception(error);
}

}  // namespace fathom::detail
