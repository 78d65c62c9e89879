// Every kernel in every number format, for nvcc: run.py beside this compiles it and reads what each of them takes.
#include <fathom/core/bf16.hpp>
#include <fathom/device/cuda/run_kernel.hpp>
#include <fathom/ops/embedding/kernel.hpp>
#include <fathom/ops/rms_norm/kernel.hpp>
#include <fathom/ops/rotary/kernel.hpp>
#include <fathom/ops/swiglu/kernel.hpp>

namespace fathom::test {

/// Their entries, so that all of them are made.
template <class... Kernels> int make() { return (0 + ... + (cuda::kernel_entry<Kernels> != nullptr)); }

/// Those that read and write a number format, in all three.
template <template <class> class... Kernels> int make_in_every_format() {
    return make<Kernels<bf16>...>() + make<Kernels<float>...>() + make<Kernels<double>...>();
}

int all() {
    return make_in_every_format<ops::rms_norm_kernel, ops::rms_norm_backward_kernel, ops::rotate_kernel,
                                ops::swiglu_kernel, ops::swiglu_backward_kernel, ops::embed_kernel,
                                ops::embed_backward_kernel>() +
           make<ops::add_rows_kernel<float>, ops::add_rows_kernel<double>>();
}

}  // namespace fathom::test
