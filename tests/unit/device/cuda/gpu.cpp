// A rank's GPU: which one it takes, and what is said where it can have none.
#include <doctest/doctest.h>

#include <cstdlib>

#include "fresh_gpu.hpp"

namespace fathom {
namespace {

using test::said;

std::string opening(integer local_rank = 0, std::span<const int> built_for = {}) {
    return said([&] { const cuda::gpu gpu{local_rank, built_for, test::gpu::calls()}; });
}

/// An environment variable for as long as this lives.
struct with_variable {
    const char* name;
    with_variable(const char* variable, const char* value) : name(variable) { setenv(name, value, 1); }
    with_variable(const with_variable&) = delete;
    with_variable& operator=(const with_variable&) = delete;
    ~with_variable() { unsetenv(name); }
};

}  // namespace

TEST_CASE("cuda: a rank takes the GPU of its number, or the one that is left to it") {
    test::gpu::machine& machine = test::fresh_gpu();
    machine.devices = 4;
    {
        const cuda::gpu third{2, {}, test::gpu::calls()};
        CHECK(third.number() == 2);
        CHECK(third.name() == "GPU 2 (a stand-in)");
        CHECK(third.capability() == 900);
        CHECK(machine.device == 2);
    }
    CHECK(opening(4) == "CUDA: found 4 GPUs, expected one for the rank with number 4 on this machine");
    machine.devices = 1;
    CHECK(opening(1) == "CUDA: found 1 GPU, expected one for the rank with number 1 on this machine");
    {
        const with_variable mine{"CUDA_VISIBLE_DEVICES", "3"};
        const cuda::gpu left{3, {}, test::gpu::calls()};
        CHECK(left.number() == 0);
        machine.devices = 2;
        CHECK(opening(2) ==
              "CUDA: found 2 GPUs (CUDA_VISIBLE_DEVICES is \"3\"), expected one for the rank with number 2 on this "
              "machine");
    }
    CHECK(machine.events == 0);
    CHECK(machine.blocks.empty());
}

TEST_CASE("cuda: no GPU, no driver, or one that is too old") {
    test::gpu::machine& machine = test::fresh_gpu();
    machine.devices = 0;
    CHECK(opening() == "CUDA: found no GPU, expected one");
    {
        const with_variable none{"CUDA_VISIBLE_DEVICES", ""};
        CHECK(opening() == "CUDA: found no GPU (CUDA_VISIBLE_DEVICES is \"\"), expected one");
    }
    machine.devices = 1;
    machine.driver = 12040;
    CHECK(opening() ==
          "CUDA: found a driver for CUDA 12.4, which is older than the runtime, 13.0: expected a newer driver, or the "
          "library libcudart.so of an older release");
    machine.driver = 0;
    CHECK(opening() == "CUDA: found no driver of NVIDIA on this machine, expected one, and a GPU");
    CHECK(machine.blocks.empty());
}

TEST_CASE("cuda: kernels run on the generation that they are built for, from its number on") {
    test::gpu::machine& machine = test::fresh_gpu();
    constexpr int hopper[] = {900}, two[] = {800, 900};
    CHECK(opening(0, hopper) == "nothing");
    machine.capability = 80;
    CHECK(opening(0, hopper) ==
          "GPU 0 (a stand-in): found an sm_80, but the kernels are built for sm_90: expected such a GPU, or kernels "
          "that are built for this one");
    CHECK(opening(0, two) == "nothing");
    machine.capability = 86;
    CHECK(opening(0, two) == "nothing");
    machine.capability = 100;
    CHECK(opening(0, two) ==
          "GPU 0 (a stand-in): found an sm_100, but the kernels are built for sm_80, sm_90: expected such a GPU, or "
          "kernels that are built for this one");
    CHECK(machine.blocks.empty());
}

TEST_CASE("cuda: an error names its call, and the kernels that may be at fault") {
    test::opened_gpu on;
    CHECK(on.device.last_kernels().empty());
    const cuda::stream work{on.device};
    on.machine.failing = "cudaMemsetAsync";
    on.machine.failure = test::gpu::invalid_value;
    CHECK(said([&] { work.queue().fill(nullptr, 0, 8); }) ==
          "GPU 0 (a stand-in): cudaMemsetAsync: found cudaErrorInvalidValue (as the stand-in was told); expected no "
          "error");
    for (const char* const name : {"a", "b", "c", "d", "e", "f", "g", "h", "i"}) test::kernel(work.queue(), name, {});
    on.machine.failing = "cudaEventQuery";  // later than the kernel, as on a GPU
    on.machine.failure = test::gpu::illegal_address;
    CHECK(said([&] { work.queue().finish(); }) ==
          "GPU 0 (a stand-in): an event: found cudaErrorIllegalAddress (as the stand-in was told); the last kernels "
          "put to work were b c d e f g h i; expected no error");
    on.machine.pending = cuda::no_kernel_image;
    CHECK(said([&] { test::kernel(work.queue(), "adamw", {}); }) ==
          "GPU 0 (a stand-in): adamw: found cudaErrorNoKernelImageForDevice (as the stand-in was told) on an sm_90; "
          "the last kernels put to work were c d e f g h i adamw; expected no error");
}

TEST_CASE("cuda: a GPU that never ends is given up at the limit") {
    test::gpu::machine& machine = test::fresh_gpu();
    cuda::gpu gpu{0, {}, test::gpu::calls(), 0.01};
    const cuda::stream work{gpu};
    test::kernel(work.queue(), "attention_forward", {});
    machine.stalls = true;
    CHECK_FALSE(work.queue().record().done());
    CHECK(said([&] { work.queue().finish(); }) ==
          "GPU 0 (a stand-in): an event was not finished within 0.01 s; the last kernels put to work were "
          "attention_forward");
    machine.stalls = false;
}

}  // namespace fathom
