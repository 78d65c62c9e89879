// Queues of a GPU: order, copies and readbacks; and that work which nothing orders is found.
#include <doctest/doctest.h>

#include <optional>
#include <vector>

#include "fresh_gpu.hpp"

namespace fathom {
namespace {

using test::kernel, test::said;

/// A GPU with two streams and memory that both use.
struct two_streams : test::opened_gpu {
    cuda::stream compute{device}, transfer{device, cuda::priority::high};
    cuda::memory memory{compute.queue(), 1 << 16};
    const cuda::queue& a = compute.queue();
    const cuda::queue& b = transfer.queue();

    [[nodiscard]] std::string faults() const {
        std::string text;
        for (const std::string& one : machine.order.faults) text += one.substr(0, one.rfind(':')) + '\n';
        return text;
    }
};

}  // namespace

TEST_CASE("cuda queue: copies in, within and out, fills and readbacks") {
    two_streams on;
    std::vector<integer> numbers{3, 1, 4, 1, 5}, back(5);
    auto* const here = reinterpret_cast<integer*>(on.memory.data());
    on.a.copy_in(here, numbers.data(), 40);
    on.a.copy(here + 8, here, 40);
    const cuda::readback<integer> one = on.a.read(here + 10), all = on.a.read(here + 8, 5);
    on.a.fill(here + 8, 0, 8);
    on.a.copy_out(back.data(), here + 8, 40);
    CHECK(one.get() == 4);
    CHECK(all.all().size() == 5);
    CHECK(all.all()[4] == 5);
    CHECK(back == std::vector<integer>{0, 1, 4, 1, 5});
    CHECK(on.faults().empty());
    CHECK(said([&] { auto many = on.a.read(here, 513); }) ==
          "GPU 0 (a stand-in): a readback has 4104 bytes, expected at most 4096: copy_out to pinned memory of one's "
          "own");
    CHECK(said([&] { on.a.copy(here, numbers.data(), 8); }).find("cudaErrorInvalidValue") != std::string::npos);
}

TEST_CASE("cuda queue: readbacks that nobody holds make room for others, on any stream") {
    two_streams on;
    auto* const here = reinterpret_cast<integer*>(on.memory.data());
    for (int n = 0; n < 3 * cuda::gpu::slots_count; ++n) {
        on.a.fill(here, static_cast<unsigned char>(n), 8);
        const cuda::event filled = on.a.record();
        on.b.wait(filled);
        const auto read = (n % 2 == 0 ? on.a : on.b).read(here);
        if (n % 3 == 0) CHECK(static_cast<unsigned char>(read.get()) == static_cast<unsigned char>(n));
        on.a.wait(on.b.record());
    }
    CHECK(on.faults().empty());
    std::vector<cuda::readback<integer>> held;
    for (integer n = 0; n < cuda::gpu::slots_count; ++n) held.push_back(on.a.read(here));
    CHECK(said([&] { held.push_back(on.a.read(here)); }) ==
          "GPU 0 (a stand-in): found 64 readbacks held at once, expected fewer");
}

TEST_CASE("cuda queue: a wait orders two streams, and its lack is found") {
    two_streams on;
    const matrix<float> x{reinterpret_cast<float*>(on.memory.data()), 4, 8, 16};
    kernel(on.a, "writer", {cuda::access_of(x)});
    on.b.wait(on.a.record());
    kernel(on.b, "reader", {cuda::access_of(matrix<const float>{x})});
    CHECK(on.faults().empty());
    kernel(on.a, "neighbour", {cuda::access_of(matrix<float>{x.data + 8, 4, 8, 16})});  // other columns
    CHECK(on.faults().empty());
    kernel(on.a, "writer", {cuda::access_of(x.rows_at(2, 1))});
    CHECK(on.faults() == "writer on stream 1 writes what reader on stream 2 reads, and nothing orders them\n");
}

TEST_CASE("cuda queue: an event that is recorded too early is found") {
    two_streams on;
    const cuda::access x = cuda::writes(on.memory.data(), 64);
    const cuda::event early = on.a.record();
    kernel(on.a, "writer", {x});
    on.b.wait(early);
    kernel(on.b, "reader", {cuda::reads(on.memory.data() + 60, 8)});
    CHECK(on.faults() == "reader on stream 2 reads what writer on stream 1 writes, and nothing orders them\n");
}

TEST_CASE("cuda queue: pinned memory that the host touches before its copy is over is found") {
    two_streams on;
    cuda::pinned_memory batch{on.device, 256};
    std::fill_n(batch.data(), 256, std::byte{7});
    batch.copy_in(on.a, on.memory.data(), 0, 256);
    std::fill_n(batch.data(), 256, std::byte{8});  // waits
    batch.copy_in(on.b, on.memory.data() + 512, 128, 128);
    batch.copy_out(on.a, on.memory.data(), 0, 64);
    CHECK(batch.data()[0] == std::byte{7});
    CHECK(batch.data()[64] == std::byte{8});
    CHECK(on.faults().empty());
    CHECK(said([&] { batch.copy_in(on.a, on.memory.data(), 200, 57); }) ==
          "pinned memory: a copy has bytes 200 to 257, expected them within 256");

    std::byte* const hasty = batch.data();
    on.a.copy_out(hasty, on.memory.data(), 64);
    const cuda::access looked = cuda::reads(hasty, 1);
    on.device.calls().note(cuda::on_host, "the host", &looked, 1);
    CHECK(on.faults() == "the host on host thread 0 reads what a copy on stream 1 writes, and nothing orders them\n");
}

TEST_CASE("cuda queue: memory is zero for the queue that it was taken on, and for others that wait") {
    two_streams on;
    kernel(on.b, "hasty", {cuda::reads(on.memory.data(), 1)});
    CHECK(on.faults() == "hasty on stream 2 reads what a fill on stream 1 writes, and nothing orders them\n");
    CHECK(on.a.read(on.memory.data()).get() == std::byte{0});
    kernel(on.b, "after the host has waited", {cuda::reads(on.memory.data(), 1)});
    CHECK(on.machine.order.faults.size() == 1);
}

TEST_CASE("cuda queue: transfers go first, and nothing is left behind") {
    {
        two_streams on;
        CHECK(on.machine.streams == 2);
        bool high = false;
        for (const std::string& call : on.machine.calls)
            high = high || call == "cudaStreamCreateWithPriority stream 2 high";
        CHECK(high);
        std::optional<cuda::event> kept = on.a.record();
        const int made = on.machine.events;
        for (int n = 0; n < 1000; ++n) kept = on.a.record();
        CHECK(on.machine.events == made);
    }
    CHECK(test::gpu::now().streams == 0);
    CHECK(test::gpu::now().events == 0);
    CHECK(test::gpu::now().blocks.empty());
}

}  // namespace fathom
