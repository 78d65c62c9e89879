// What every kernel needs to know about a number format: what sums are kept in, and its name in files and messages.
#pragma once

#include <fathom/core/bf16.hpp>

namespace fathom {

namespace detail {
template <class T> struct number;
template <> struct number<double> {
    using accumulator = double;
    static constexpr const char* name = "fp64";
    static constexpr const char* file_name = "F64";
};
template <> struct number<float> {
    using accumulator = float;
    static constexpr const char* name = "fp32";
    static constexpr const char* file_name = "F32";
};
template <> struct number<bf16> {
    using accumulator = float;
    static constexpr const char* name = "bf16";
    static constexpr const char* file_name = "BF16";
};
}  // namespace detail

/// The format that sums over T are kept in: float for bf16 and float, double for double.
template <class T> using accumulator_t = typename detail::number<T>::accumulator;

/// `fp64`, `fp32` or `bf16`: as users write it in `precision<>`.
template <class T> inline constexpr const char* number_name = detail::number<T>::name;

/// `F64`, `F32` or `BF16`: as safetensors writes it.
template <class T> inline constexpr const char* number_file_name = detail::number<T>::file_name;

}  // namespace fathom
