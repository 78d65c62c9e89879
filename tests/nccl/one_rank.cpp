// NCCL's communicator with one rank on a real GPU, for tools/gpu_check: needs the libraries, not their headers.
//     g++ -std=c++20 -I include -o one_rank tests/nccl/one_rank.cpp && ./one_rank
#include <cstdio>
#include <exception>
#include <fathom/comm/all_gather.hpp>
#include <fathom/comm/all_reduce.hpp>
#include <fathom/comm/all_to_all.hpp>
#include <fathom/comm/barrier.hpp>
#include <fathom/comm/exchange.hpp>
#include <fathom/comm/reduce_scatter.hpp>
#include <fathom/cuda.hpp>
#include <fathom/nccl.hpp>
#include <string>
#include <vector>

namespace fathom {
namespace {

constexpr integer count = 1 << 20;

/// Runs one operation of input[count] and output[count], both in memory that the CPU and the GPU share; one rank's
/// output is its input.
void expect_same(comm::nccl::communicator& ranks, const comm::request& what, const float* input, float* output) {
    for (integer i = 0; i < count; ++i) output[i] = what.input == output ? input[i] : -1;
    ranks.run(what);
    ranks.settle();
    for (integer i = 0; i < count; ++i)
        if (output[i] != input[i]) fail(name_of(what.kind), ": found ", output[i], " at ", i, ", expected ", input[i]);
    std::printf("%s: the input's %lld numbers\n", name_of(what.kind), static_cast<long long>(count));
}

void run() {
    using comm::nccl::communicator;
    const cuda::gpu gpu;
    int (*share)(void**, std::size_t, unsigned) = nullptr;
    shared_library::open("the CUDA runtime", "cudaMallocManaged", {"libcudart.so.13", "libcudart.so.12"})
        .take(share, "cudaMallocManaged");
    void *in = nullptr, *out = nullptr;
    constexpr unsigned everywhere = 1;
    if (share(&in, count * sizeof(float), everywhere) != 0 || share(&out, count * sizeof(float), everywhere) != 0)
        fail("cudaMallocManaged: expected memory for ", 2 * count, " numbers");
    auto *const input = static_cast<float*>(in), *const output = static_cast<float*>(out);
    for (integer i = 0; i < count; ++i) input[i] = static_cast<float>(i % 1000);

    const comm::nccl::settings tuned{.debug = comm::nccl::debug_level::warn};
    comm::nccl::hand_over(tuned);
    std::puts(described(tuned, 0).c_str());
    communicator all{nullptr, communicator::new_id(), 0, 1, tuned, {.limit = 20, .start = 30}};
    communicator part = all.split(0, 0, "part");
    for (communicator* const ranks : {&all, &part}) {
        expect_same(*ranks, comm::all_reduce(output, count), input, output);
        expect_same(*ranks, comm::reduce_scatter(input, output, count), input, output);
        expect_same(*ranks, comm::all_gather(input, output, count), input, output);
        expect_same(*ranks, comm::all_to_all(input, output, count), input, output);
        const std::vector<comm::message> self{comm::send_to(0, input, count), comm::receive_from(0, output, count)};
        expect_same(*ranks, comm::exchange(self), input, output);
        ranks->run(comm::barrier());
        ranks->settle();
    }
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
