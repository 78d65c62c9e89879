// The number format E4M3 of eight bits, in which DeepSeek-V3 multiplies, as plain bits with conversions.
#pragma once

#include <bit>
#include <cstdint>

namespace fathom {

/// A sign, four exponent and three mantissa bits, as the OCP's "8-bit floating point specification" has it: at most
/// 448, no infinity, at least 2^-9 beside 0. Arithmetic happens in float.
struct e4m3 {
    std::uint8_t bits = 0;

    static constexpr float largest = 448;

    constexpr e4m3() = default;
    /// Rounds to nearest, ties to even; what is larger than 448 becomes 448, NaN stays NaN.
    constexpr explicit e4m3(float value) {
        const auto word = std::bit_cast<std::uint32_t>(value), size = word & 0x7fffffffu;
        std::uint32_t low = 0x7f;
        if (size <= 0x7f800000u) {
            if (size >= 0x43e00000u)  // 448
                low = 0x7e;
            else if (size >= 0x3c800000u)  // 2^-6, the smallest with a leading bit
                low = ((size + 0x7ffffu + ((size >> 20) & 1u)) >> 20) - (120u << 3);
            else  // adding 2^23 rounds multiples of 2^-9 to an integer in the lowest bits
                low = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) * 512.0f + 8388608.0f) & 0xffu;
        }
        bits = static_cast<std::uint8_t>((word >> 24 & 0x80u) | low);
    }
    constexpr explicit operator float() const {
        const std::uint32_t low = bits & 0x7fu, sign = (bits & 0x80u) << 24;
        std::uint32_t size = (low << 20) + (120u << 23);
        if (low == 0x7f) size = 0x7fc00000u;
        if (low < 8) size = std::bit_cast<std::uint32_t>(static_cast<float>(low) / 512.0f);
        return std::bit_cast<float>(sign | size);
    }
};

}  // namespace fathom
