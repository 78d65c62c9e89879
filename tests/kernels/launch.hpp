// How tests run a kernel: on the simulated block, and on a GPU when nvcc compiles them (device.cu says how).
#pragma once

#include <fathom/core/bytes.hpp>

#if defined(__CUDACC__)
#include <fathom/device/cuda/launch.hpp>
#else
#include <fathom/device/simulated/launch.hpp>
#endif

namespace fathom::test {

/// Runs the kernel to its end. On a GPU, all memory of arguments comes from operator new, see device.cu.
template <class Kernel, class... Arguments>
void launch(const Kernel& kernel, integer blocks, const Arguments&... arguments) {
#if defined(__CUDACC__)
    cuda::launch(nullptr, kernel, blocks, arguments...);
    if (const cudaError_t status = cudaDeviceSynchronize(); status != cudaSuccess)
        fail("kernel ", Kernel::name, ": found ", cudaGetErrorString(status), ", expected it to end");
#else
    simulated::launch(kernel, blocks, arguments...);
#endif
}

}  // namespace fathom::test
