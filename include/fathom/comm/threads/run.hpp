// A function run as so many ranks of one process, which end together: with the first error, or well.
#pragma once

#include <exception>
#include <fathom/comm/threads/group.hpp>
#include <mutex>
#include <thread>
#include <vector>

namespace fathom::comm::threads {

/// Calls body(communicator) on a thread a rank, the caller being rank 0, and returns when all have returned. A rank
/// that throws ends the others; `fathom::error` with its rank and text is then thrown here (an exception of a foreign
/// type, as it is).
template <class Body> void run(integer ranks, Body&& body, watchdog limit = {}) {
    const group all{ranks, limit};
    std::mutex mutex;
    std::exception_ptr foreign;
    const auto as_rank = [&](integer number) {
        try {
            communicator mine = all.rank(number);
            body(mine);
        } catch (const std::exception& problem) {
            all.end(text_of("rank ", number, ": ", problem.what()));
        } catch (...) {
            {
                const std::lock_guard lock{mutex};
                if (!foreign) foreign = std::current_exception();
            }
            all.end(text_of("rank ", number, ": an exception without a text"));
        }
        all.leave(number);
    };
    {
        std::vector<std::jthread> threads;
        try {
            for (integer number = 1; number < ranks; ++number) threads.emplace_back(as_rank, number);
        } catch (const std::exception& problem) {
            all.end(text_of("thread ", threads.size() + 1, " of ", ranks, " ranks cannot be made: ", problem.what()));
        }
        as_rank(0);
    }
    if (foreign) std::rethrow_exception(foreign);
    if (all.has_ended()) throw error{all.reason()};
}

}  // namespace fathom::comm::threads
