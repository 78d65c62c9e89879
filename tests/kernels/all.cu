// Every kernel in every number format, for nvcc: run.py beside this compiles it and reads what each of them takes.
#include <fathom/core/bf16.hpp>
#include <fathom/device/cuda/run_kernel.hpp>
#include <fathom/ops/attention/around_kernel.hpp>
#include <fathom/ops/attention/backward_kernel.hpp>
#include <fathom/ops/attention/kernel.hpp>
#include <fathom/ops/attention/plain_kernel.hpp>
#include <fathom/ops/balance/kernel.hpp>
#include <fathom/ops/cross_entropy/kernel.hpp>
#include <fathom/ops/elementwise/kernel.hpp>
#include <fathom/ops/embedding/kernel.hpp>
#include <fathom/ops/permutation/kernel.hpp>
#include <fathom/ops/product/bias_kernel.hpp>
#include <fathom/ops/product/kernel.hpp>
#include <fathom/ops/quantise/kernel.hpp>
#include <fathom/ops/rms_norm/kernel.hpp>
#include <fathom/ops/rotary/kernel.hpp>
#include <fathom/ops/router/kernel.hpp>
#include <fathom/ops/swiglu/kernel.hpp>
#include <fathom/optim/adamw_kernel.hpp>
#include <fathom/optim/gradient_norm_kernel.hpp>

namespace fathom::test {

/// Their entries, so that all of them are made.
template <class... Kernels> int make() { return (0 + ... + (cuda::kernel_entry<Kernels> != nullptr)); }

/// Attention of heads of these widths.
template <int QkDim, int VDim> int make_attention() {
    return make<ops::attention_forward_kernel<QkDim, VDim>, ops::attention_keys_backward_kernel<QkDim, VDim>,
                ops::attention_queries_backward_kernel<QkDim, VDim>>();
}

/// Attention of any heads, with results and gradients in G.
template <class T, class G> int make_plain_attention() {
    return make<ops::attention_plain_forward_kernel<T, G>, ops::attention_plain_keys_backward_kernel<T, G>,
                ops::attention_plain_queries_backward_kernel<T, G>>();
}

/// Those that read and write a number format, in all three.
template <template <class> class... Kernels> int make_in_every_format() {
    return make<Kernels<bf16>...>() + make<Kernels<float>...>() + make<Kernels<double>...>();
}

/// Those that sum in a format.
template <template <class> class... Kernels> int make_in_every_sum() {
    return make<Kernels<float>...>() + make<Kernels<double>...>();
}

/// Those that join formats, for layers in T.
template <class T> int make_joints() {
    using A = accumulator_t<T>;
    return make<ops::copy_kernel<T, T>, ops::add_kernel<T, T>, ops::add_bias_kernel<T, T>,
                ops::bias_weight_kernel<A, T>, ops::product_kernel<T, T, T>, ops::product_kernel<T, A, T>,
                ops::grouped_product_kernel<T, T, T>, ops::grouped_product_weight_kernel<T, T>>();
}

int all() {
    return make_in_every_format<ops::rms_norm_kernel, ops::rms_norm_backward_kernel, ops::rotate_kernel,
                                ops::swiglu_kernel, ops::swiglu_backward_kernel, ops::embed_kernel,
                                ops::embed_backward_kernel, ops::gather_rows_kernel, ops::combine_rows_kernel,
                                ops::attention_means_kernel, ops::attention_shared_kernel, ops::scale_kernel,
                                ops::sum_parts_kernel>() +
           make_in_every_sum<ops::add_rows_kernel, ops::cross_entropy_kernel, ops::route_kernel,
                             ops::route_backward_kernel, ops::bias_update_kernel, ops::move_scalars_kernel,
                             optim::squared_norm_kernel, ops::balance_sums_kernel, ops::balance_backward_kernel>() +
           make_joints<bf16>() + make_joints<float>() + make_joints<double>() +
           make<ops::copy_kernel<float, bf16>, ops::copy_kernel<bf16, float>, ops::add_kernel<float, bf16>,
                ops::product_kernel<float, bf16, bf16>, ops::product_kernel<float, float, bf16>,
                ops::balance_loss_kernel>() +
           make_attention<192, 128>() + make_attention<128, 128>() + make_attention<64, 64>() +
           make_plain_attention<bf16, bf16>() + make_plain_attention<bf16, float>() +
           make_plain_attention<float, float>() + make_plain_attention<double, double>() +
           make<ops::add_load_kernel, ops::count_rows_kernel, ops::place_groups_kernel, ops::place_rows_kernel,
                optim::sum_kernel, optim::clip_kernel, ops::quantise_rows_kernel<bf16>,
                ops::quantise_rows_kernel<float>, ops::quantise_blocks_kernel<bf16>, ops::quantise_blocks_kernel<float>,
                optim::adamw_kernel<bf16, float>, optim::adamw_kernel<float, float>,
                optim::adamw_kernel<double, double>>();
}

}  // namespace fathom::test
