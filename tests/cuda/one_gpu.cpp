// The runtime's queues, memory and graphs on a real GPU, or on the stand-in's library: needs no header of CUDA.
//     g++ -std=c++20 -I include -o one_gpu tests/cuda/one_gpu.cpp && ./one_gpu
#include <algorithm>
#include <cstdio>
#include <exception>
#include <fathom/cuda.hpp>
#include <string>
#include <tuple>
#include <vector>

namespace fathom {
namespace {

constexpr integer count = 1 << 20, bytes = count * 8;

void expect(bool holds, const char* what) {
    if (!holds) fail("one_gpu: ", what, " does not hold");
    std::printf("%s\n", what);
}
/// What an error says of a call that must fail.
template <class Call> std::string refused(const char* what, Call&& call) {
    try {
        call();
    } catch (const error& problem) {
        std::printf("%s is refused: %s\n", what, problem.what());
        return problem.what();
    }
    fail("one_gpu: ", what, " was not refused");
}

/// Numbers go in on one stream, are copied on another, and come back.
void copies(cuda::gpu& gpu) {
    const cuda::stream compute{gpu}, transfer{gpu, cuda::priority::high};
    const cuda::queue &a = compute.queue(), &b = transfer.queue();
    const cuda::memory all{a, 2 * bytes};
    auto *const first = reinterpret_cast<integer*>(all.data()), *const second = first + count;
    expect(a.read(first + count - 1).get() == 0, "memory is zero");
    cuda::pinned_memory batch{gpu, bytes};
    bool right = true;
    for (integer round = 1; round <= 3; ++round) {
        auto* const numbers = reinterpret_cast<integer*>(batch.data());
        for (integer i = 0; i < count; ++i) numbers[i] = i * round;
        batch.copy_in(a, first, 0, bytes);
        b.wait(a.record());
        b.copy(second, first, bytes);
        a.wait(b.record());
        a.fill(first, 0, bytes);
        batch.copy_out(a, second, 0, bytes);
        const auto some = a.read(second + 1000, 500);
        right = right && some.all()[499] == 1499 * round;
        const auto* const back = reinterpret_cast<const integer*>(batch.data());
        for (integer i = 0; i < count; ++i) right = right && back[i] == i * round;
    }
    expect(right, "copies on two streams come back");
    std::vector<integer> plain(count, 7);
    a.copy_in(first, plain.data(), bytes);
    std::fill(plain.begin(), plain.end(), 0);
    a.copy_out(plain.data(), first, bytes);
    a.finish();
    expect(plain == std::vector<integer>(count, 7), "memory that is not pinned may be written at once");
}

void graphs(cuda::gpu& gpu) {
    const cuda::stream compute{gpu}, side{gpu};
    const cuda::queue &a = compute.queue(), &b = side.queue();
    const cuda::memory all{a, 3 * bytes};
    auto* const numbers = reinterpret_cast<integer*>(all.data());
    cuda::graph both{gpu, "both"};
    bool right = true;
    for (unsigned char n = 1; n <= 4; ++n) {
        a.fill(numbers, n, bytes);
        both.run(a, [&] {
            b.wait(a.record());
            b.copy(numbers + count, numbers, bytes);
            a.copy(numbers + 2 * count, numbers, bytes);
            a.wait(b.record());
        });
        const integer wanted = 0x0101010101010101 * n;
        right = right && a.read(numbers + count + 5).get() == wanted;
        right = right && a.read(numbers + 3 * count - 1).get() == wanted;
    }
    expect(right && both.captured(), "a graph with a fork is replayed");
    cuda::graph waits{gpu, "waits"};
    waits.run(a, [] {});
    const auto read = [&] { waits.run(a, [&] { std::ignore = a.read(numbers); }); };
    refused("a readback within a graph", read);
    expect(a.read(numbers).get() != 0, "the queue goes on after a graph that was refused");
}

void errors(cuda::gpu& gpu) {
    const cuda::stream work{gpu};
    const std::string large = refused("a plan of 1 PiB", [&] {
        const cuda::memory no{work.queue(), integer{1} << 50};
    });
    expect(large.find(" free of ") != std::string::npos, "what is free is named");
    const cuda::memory some{work.queue(), 64};
    const std::string wrong = refused("a copy to nowhere", [&] { work.queue().copy(nullptr, some.data(), 64); });
    expect(wrong.find("cudaMemcpyAsync") != std::string::npos, "the call is named");
    expect(work.queue().read(some.data()).get() == std::byte{0}, "the queue goes on after a call that was refused");
}

void run() {
    cuda::gpu gpu;
    std::printf("%s, sm_%d\n", gpu.name().c_str(), gpu.capability() / 10);
    copies(gpu);
    graphs(gpu);
    errors(gpu);
}

}  // namespace
}  // namespace fathom

int main() {
    try {
        fathom::run();
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "%s\n", problem.what());
        return 1;
    }
}
