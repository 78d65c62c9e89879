// The one entry through which nvcc makes a program of the GPU out of a kernel that was written once.
#pragma once

#if defined(__CUDACC__)

#include <fathom/device/cuda/block.hpp>

namespace fathom::cuda {

/// Runs kernel(block, arguments...) as each thread of a grid of blocks of Kernel::threads threads; as launches in
/// simulation do, takes a `matrix<T>` for what a kernel calls `rows<T>`. Launch it with kernel.shared_bytes() bytes of
/// dynamic shared memory; more than 48 KiB must be allowed by cudaFuncSetAttribute.
template <class Kernel, class... Arguments>
__global__ void __launch_bounds__(Kernel::threads) run_kernel(Kernel kernel, Arguments... arguments) {
    block here;
    kernel(here, arguments...);
}

namespace detail {

template <class Call> struct entry_of;
template <class Kernel, class... Arguments> struct entry_of<void (Kernel::*)(block&, Arguments...) const> {
    static constexpr auto function = &run_kernel<Kernel, Arguments...>;
};

}  // namespace detail

/// The entry of a kernel by its type alone, as cudaLaunchKernel and cudaFuncSetAttribute take it.
template <class Kernel>
inline constexpr auto kernel_entry = detail::entry_of<decltype(&Kernel::template operator()<block>)>::function;

}  // namespace fathom::cuda

#endif
