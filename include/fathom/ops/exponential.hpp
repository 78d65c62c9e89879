// An exponential that compilers vectorise: the C library's is a call for each number and would be the slowest line of a
// softmax.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace fathom::ops {

/// e^x for float, within 2 units in the last place on [-87, 88]; below it 0, above it infinity. Cody and Waite's
/// reduction to [-ln 2 / 2, ln 2 / 2] and a Taylor polynomial of degree 7 in Horner's form. The ends are cut with masks
/// of integers: g++ turns a conditional between floats into a branch here, and then leaves the loop scalar.
inline float exponential(float x) {
    const float shifted =
        x * 1.44269504088896f + 12582912.0f;  // 1.5 * 2^23: the integer lands in the low mantissa bits
    const float n = shifted - 12582912.0f;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const auto power = std::bit_cast<std::uint32_t>(shifted) << 23;  // adding n to the exponent field multiplies by 2^n
    const auto word = std::bit_cast<std::uint32_t>(p) + power;
    const auto below = 0u - static_cast<std::uint32_t>(x < -87.0f), above = 0u - static_cast<std::uint32_t>(x > 88.0f);
    return std::bit_cast<float>((word & ~(below | above)) | (above & 0x7f800000u));
}
inline double exponential(double x) { return std::exp(x); }

/// 1 / (1 + e^-x).
template <class T> inline T logistic(T x) { return T{1} / (T{1} + exponential(-x)); }

}  // namespace fathom::ops
