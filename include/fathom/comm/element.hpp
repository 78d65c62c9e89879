// The number formats that travel between ranks, as a value: engines beneath the collectives know no types.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <fathom/core/bf16.hpp>
#include <fathom/core/bytes.hpp>

namespace fathom::comm {

/// What a buffer is made of.
enum class element : std::uint8_t { fp64, fp32, bf16, int64, int32, byte };

[[nodiscard]] constexpr integer bytes_of(element format) {
    constexpr integer sizes[] = {8, 4, 2, 8, 4, 1};
    return sizes[static_cast<int>(format)];
}
/// As messages write it.
[[nodiscard]] constexpr const char* name_of(element format) {
    constexpr const char* names[] = {"fp64", "fp32", "bf16", "int64", "int32", "bytes"};
    return names[static_cast<int>(format)];
}

/// What may be sent.
template <class T>
concept sendable = std::same_as<T, double> || std::same_as<T, float> || std::same_as<T, fathom::bf16> ||
    std::same_as<T, std::int64_t> || std::same_as<T, std::int32_t> || std::same_as<T, std::byte>;

/// What may be added and compared. bf16 is added in float and rounded once; integers wrap around.
template <class T>
concept reducible = sendable<T> && !std::same_as<T, std::byte>;

template <sendable T>
inline constexpr element element_of = std::same_as<T, double>         ? element::fp64
                                      : std::same_as<T, float>        ? element::fp32
                                      : std::same_as<T, fathom::bf16> ? element::bf16
                                      : std::same_as<T, std::int64_t> ? element::int64
                                      : std::same_as<T, std::int32_t> ? element::int32
                                                                      : element::byte;

}  // namespace fathom::comm
