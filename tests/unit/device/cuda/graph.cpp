// Pieces of a step as graphs: captured once, replayed with the same order, and refused where they could not be.
#include <doctest/doctest.h>

#include <algorithm>
#include <tuple>

#include "fresh_gpu.hpp"

namespace fathom {
namespace {

using test::kernel, test::said;

struct with_memory : test::opened_gpu {
    cuda::stream work{device}, side{device};
    const cuda::queue& a = work.queue();
    const cuda::queue& b = side.queue();
    cuda::memory memory{a, 4096};
    integer* numbers = reinterpret_cast<integer*>(memory.data());

    with_memory() { b.wait(a.record()); }
    [[nodiscard]] integer seen() const { return a.read(numbers).get(); }
    [[nodiscard]] auto launches() const {
        return std::count_if(machine.calls.begin(), machine.calls.end(),
                             [](const std::string& call) { return call.starts_with("cudaGraphLaunch"); });
    }
};

}  // namespace

TEST_CASE("cuda graph: runs as it is, is captured, and is replayed") {
    with_memory on;
    cuda::graph forward{on.device, "forward"};
    int called = 0;
    const auto body = [&] {
        ++called;
        on.a.copy(on.numbers + 1, on.numbers, 8);
        kernel(on.a, "one", {cuda::reads(on.numbers + 1, 8)});
    };
    for (integer n = 1; n <= 4; ++n) {
        on.a.fill(on.numbers, static_cast<unsigned char>(n), 8);
        forward.run(on.a, body);
        CHECK(on.a.read(on.numbers + 1).get() == n * 0x0101010101010101);
        CHECK(forward.captured() == (n > 1));
    }
    CHECK(called == 2);
    CHECK(on.launches() == 3);
    CHECK(on.machine.order.faults.empty());
    CHECK(on.machine.graphs == 1);  // what it was made from is gone
    CHECK(on.device.last_kernels() == "; the last kernels put to work were one one forward forward forward");
}

TEST_CASE("cuda graph: forks and joins, and what it does is ordered with what is outside") {
    with_memory on;
    cuda::graph both{on.device, "both"};
    bool joins = true;
    const auto body = [&] {
        kernel(on.a, "first", {cuda::writes(on.numbers, 8)});
        on.b.wait(on.a.record());
        kernel(on.b, "beside", {cuda::reads(on.numbers, 8), cuda::writes(on.numbers + 1, 8)});
        kernel(on.a, "second", {cuda::reads(on.numbers, 8)});
        if (joins) on.a.wait(on.b.record());
        kernel(on.a, "last", {cuda::writes(on.numbers + 1, 8)});
    };
    for (int n = 0; n < 3; ++n) {
        kernel(on.a, "before", {cuda::writes(on.numbers, 16)});
        both.run(on.a, body);
        kernel(on.a, "after", {cuda::writes(on.numbers, 16)});
    }
    CHECK(on.machine.order.faults.empty());
    kernel(on.b, "hasty", {cuda::reads(on.numbers, 8)});
    CHECK(on.machine.order.faults.size() == 1);

    cuda::graph open{on.device, "open"};
    on.a.wait(on.b.record());
    joins = false;
    open.run(on.a, body);
    on.machine.order.faults.clear();
    on.a.wait(on.b.record());
    CHECK(said([&] { open.run(on.a, body); }) ==
          "GPU 0 (a stand-in): cudaStreamEndCapture: found cudaErrorStreamCaptureUnjoined (as the stand-in was told); "
          "the last kernels put to work were first beside second last first beside second last; expected no error");
    CHECK(on.machine.order.faults.empty());  // what was captured did not run
    kernel(on.b, "free again", {});
    CHECK(on.seen() == 0);
}

TEST_CASE("cuda graph: what two branches do is found if nothing orders it") {
    with_memory on;
    cuda::graph raced{on.device, "raced"};
    on.a.wait(on.b.record());
    const auto body = [&] {
        on.b.wait(on.a.record());
        kernel(on.b, "beside", {cuda::writes(on.numbers + 1, 8)});
        kernel(on.a, "last", {cuda::writes(on.numbers, 16)});
        on.a.wait(on.b.record());
    };
    raced.run(on.a, body);
    on.machine.order.faults.clear();
    raced.run(on.a, body);
    REQUIRE(on.machine.order.faults.size() == 1);
    CHECK(on.machine.order.faults[0].starts_with(
        "last on branch 0 of a graph writes what beside on branch 1 of a graph writes, and nothing orders them: 8"));
}

TEST_CASE("cuda graph: a readback, a wait of the host and an event from outside are refused") {
    with_memory on;
    const auto captured = [&](const char* name, auto&& body) {
        cuda::graph made{on.device, name};
        made.run(on.a, [] {});
        return said([&] { made.run(on.a, body); });
    };
    CHECK(captured("router", [&] { std::ignore = on.a.read(on.numbers); }) ==
          "graph router: found a readback within it, expected the graph to end before the host waits");
    const cuda::readback<integer> before = on.a.read(on.numbers);
    CHECK(captured("router", [&] { std::ignore = before.get(); }) ==
          "graph router: found a readback within it, expected the graph to end before the host waits");
    CHECK(captured("step", [&] { on.a.finish(); }) ==
          "graph step: found an event within it, expected the graph to end before the host waits");
    const cuda::event outside = on.b.record();
    CHECK(captured("step", [&] { on.a.wait(outside); }).find("cudaErrorStreamCaptureIsolation") != std::string::npos);
    // What goes past the queue is refused by CUDA, as the stand-in knows.
    CHECK(captured("step", [&] {
              const cuda::event within = on.a.record();
              on.device.calls().event_query(within.handle());
          }).find("cudaErrorStreamCaptureInvalidated") != std::string::npos);
    CHECK(captured("step", [&] { const cuda::memory more(on.a, 8); }).find("cudaErrorStreamCaptureUnsupported") !=
          std::string::npos);
    CHECK(on.seen() == 0);
    CHECK(on.machine.graphs == 0);
}

}  // namespace fathom
