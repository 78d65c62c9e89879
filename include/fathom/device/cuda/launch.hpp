// The way to run a kernel on a GPU: beside simulated/launch.hpp, with the same arguments.
#pragma once

#if defined(__CUDACC__)

#include <cuda_runtime.h>

#include <fathom/core/error.hpp>
#include <fathom/device/cuda/run_kernel.hpp>

namespace fathom::cuda {

/// Puts kernel(block, arguments...) over `blocks` blocks into a stream; matrices are of device memory. Errors: what
/// CUDA says, with the kernel's name.
template <class Kernel, class... Arguments>
void launch(cudaStream_t stream, const Kernel& kernel, integer blocks, const Arguments&... arguments) {
    if (blocks == 0) return;
    integer shared_bytes = 0;
    if constexpr (requires { kernel.shared_bytes(); }) shared_bytes = kernel.shared_bytes();
    const auto entry = kernel_entry<Kernel>;
    cudaError_t status = cudaSuccess;
    if (shared_bytes > 48 << 10)  // more than a block has unless it is asked for
        status =
            cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (status == cudaSuccess) {
        entry<<<static_cast<unsigned>(blocks), Kernel::threads, static_cast<std::size_t>(shared_bytes), stream>>>(
            kernel, arguments...);
        status = cudaGetLastError();
    }
    if (status != cudaSuccess)
        fail("kernel ", Kernel::name, ": found ", cudaGetErrorString(status), " at its launch with ", blocks,
             " blocks of ", Kernel::threads, " threads and ", shared_bytes,
             " bytes of shared memory, expected it to start");
}

}  // namespace fathom::cuda

#endif
