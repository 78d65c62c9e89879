// A rank's block of GPU memory: a plan that is larger than what is free is refused before anything is taken.
#include <doctest/doctest.h>

#include "fresh_gpu.hpp"

namespace fathom {

using test::said;

TEST_CASE("cuda memory: exactly the bytes of the plan, once") {
    test::opened_gpu on;
    const cuda::stream work{on.device};
    on.machine.unused_bytes = 1000;
    on.machine.calls.clear();
    const cuda::memory all{work.queue(), 1000};
    CHECK(on.machine.calls.front() == "cudaMalloc 1000");
    CHECK(on.machine.unused_bytes == 0);
    CHECK(all.size() == 1000);
}

TEST_CASE("cuda memory: too little is said before the first allocation, with what is largest") {
    test::opened_gpu on;
    const cuda::stream work{on.device};
    arena_log plan;
    arena counted;
    counted.log_to(&plan);
    counted.take<std::byte>(3 << 20);
    counted.mark("blocks", lifetime::run);
    counted.take<std::byte>(100);
    counted.mark("step", lifetime::run);
    counted.take<std::byte>(integer{40} << 30);
    counted.mark("moments", lifetime::run);
    counted.take<std::byte>(5 << 20);
    counted.mark("embedding", lifetime::run);
    on.machine.unused_bytes = std::size_t{30} << 30;
    on.machine.calls.clear();
    CHECK(said([&] { const cuda::memory none(work.queue(), counted.peak(), plan); }) ==
          "GPU 0 (a stand-in): found 30.0 GiB free of 80.0 GiB, expected 40.0 GiB for the plan; its largest items are "
          "moments: 40.0 GiB, embedding: 5.0 MiB, blocks: 3.0 MiB");
    CHECK(on.machine.calls.empty());
    CHECK(said([&] { const cuda::memory none(work.queue(), (integer{30} << 30) + 1); }) ==
          "GPU 0 (a stand-in): found 30.0 GiB free of 80.0 GiB, expected 30.0 GiB for the plan");
}

}  // namespace fathom
