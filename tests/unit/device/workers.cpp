// The pool: every task once, whoever comes late, and the first error thrown again.
#include <doctest/doctest.h>

#include <atomic>
#include <fathom/core/error.hpp>
#include <fathom/device/host/workers.hpp>
#include <string>
#include <vector>

#include "../scratch_folder.hpp"

namespace fathom {
namespace {

TEST_CASE("workers: each task is done once, in thousands of runs of all sizes") {
    host::workers pool{4};
    std::vector<int> done(64);
    for (integer run = 0; run < 5'000; ++run) {
        const integer tasks = run % 64;
        // A run's tasks read what the run before wrote, without a lock.
        pool.run(tasks, [&](integer n, int worker) {
            done[static_cast<std::size_t>(n)] += worker >= 0 && worker < 4 ? 1 : 1'000;
        });
    }
    for (integer n = 0; n < 64; ++n) {
        int expected = 0;
        for (integer run = 0; run < 5'000; ++run) expected += n < run % 64 ? 1 : 0;
        CHECK(done[static_cast<std::size_t>(n)] == expected);
    }
}

TEST_CASE("workers: an error ends a run, the first one is thrown, and the next run is whole") {
    host::workers pool{3};
    for (int run = 0; run < 200; ++run) {
        std::atomic<int> begun{0};
        const std::string message = test::message_of([&] {
            pool.run(1'000, [&](integer n, int) {
                ++begun;
                if (n % 10 == 3) fail("task ", n % 10);
            });
        });
        CHECK(message == "task 3");
        CHECK(begun < 1'000);
        std::atomic<int> done{0};
        pool.run(50, [&](integer, int) { ++done; });
        CHECK(done == 50);
    }
}

}  // namespace
}  // namespace fathom
