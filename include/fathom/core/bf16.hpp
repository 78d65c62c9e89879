// The number format bf16 as plain bits with conversions, because g++ 12 has no arithmetic type for it.
#pragma once

#include <bit>
#include <cstdint>

namespace fathom {

/// Eight exponent and seven mantissa bits: the upper half of a float. Converts both ways; arithmetic happens in float.
struct bf16 {
    std::uint16_t bits = 0;

    constexpr bf16() = default;
    /// Rounds to nearest, ties to even; NaN stays NaN.
    constexpr bf16(float value) {  // NOLINT(google-explicit-constructor): a number format converts as numbers do
        const auto word = std::bit_cast<std::uint32_t>(value);
        const bool nan = (word & 0x7fffffffu) > 0x7f800000u;
        const std::uint32_t rounded = word + 0x7fffu + ((word >> 16) & 1u);
        bits = static_cast<std::uint16_t>((nan ? (word | 0x400000u) : rounded) >> 16);
    }
    constexpr operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }  // NOLINT
};

}  // namespace fathom
