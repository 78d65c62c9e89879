// The way to run a kernel on a GPU: beside simulated/launch.hpp, with the same arguments.
#pragma once

#if defined(__CUDACC__)

#include <cuda_runtime.h>

#include <fathom/core/error.hpp>
#include <fathom/device/cuda/queue.hpp>
#include <fathom/device/cuda/run_kernel.hpp>
#include <string>

namespace fathom::cuda {

/// What nvcc compiles for, as `gpu` takes it: 900 for sm_90 and sm_90a.
inline constexpr int built_for[] = {__CUDA_ARCH_LIST__};

namespace detail {

/// Errors: `status`, unless it is success, with the kernel's name and `more`.
template <class Kernel>
void check_launch(int status, const char* name_of_status, integer blocks, integer shared_bytes,
                  const std::string& more) {
    if (status != success)
        fail("kernel ", Kernel::name, ": found ", name_of_status, " at its launch with ", blocks, " blocks of ",
             Kernel::threads, " threads and ", shared_bytes, " bytes of shared memory, expected it to start", more);
}

template <class Kernel> integer shared_bytes_of(const Kernel& kernel) {
    if constexpr (requires { kernel.shared_bytes(); })
        return kernel.shared_bytes();
    else
        return 0;
}

template <class Kernel, class... Arguments>
cudaError_t start(cudaStream_t stream, const Kernel& kernel, integer blocks, const Arguments&... arguments) {
    const integer shared_bytes = shared_bytes_of(kernel);
    const auto entry = kernel_entry<Kernel>;
    if (shared_bytes > 48 << 10)  // more than a block has unless it is asked for
        if (const cudaError_t status = cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                            static_cast<int>(shared_bytes));
            status != cudaSuccess)
            return cudaGetLastError();
    entry<<<static_cast<unsigned>(blocks), Kernel::threads, static_cast<std::size_t>(shared_bytes), stream>>>(
        kernel, arguments...);
    return cudaGetLastError();
}

}  // namespace detail

/// Puts kernel(block, arguments...) over `blocks` blocks into a stream; matrices are of device memory. Errors: what
/// CUDA says, with the kernel's name.
template <class Kernel, class... Arguments>
void launch(cudaStream_t stream, const Kernel& kernel, integer blocks, const Arguments&... arguments) {
    if (blocks == 0) return;
    const cudaError_t status = detail::start(stream, kernel, blocks, arguments...);
    detail::check_launch<Kernel>(status, cudaGetErrorString(status), blocks, detail::shared_bytes_of(kernel), {});
}
/// The same on a queue, which remembers the kernel for errors that come later.
template <class Kernel, class... Arguments>
void launch(const queue& on, const Kernel& kernel, integer blocks, const Arguments&... arguments) {
    if (blocks == 0) return;
    const cudaError_t status = detail::start(static_cast<cudaStream_t>(on.stream), kernel, blocks, arguments...);
    on.of->remember(Kernel::name);
    detail::check_launch<Kernel>(status, cudaGetErrorString(status), blocks, detail::shared_bytes_of(kernel),
                                 status != cudaSuccess ? on.of->last_kernels() : std::string{});
    if (on.of->calls().note == nullptr) return;
    const access touched[] = {access_of(arguments)...};
    on.note(Kernel::name, touched, sizeof...(arguments));
}

}  // namespace fathom::cuda

#endif
