// A tensor as a file holds it: plain bytes with the format and shape found there, checked but not yet converted, so
// that loading a model copies each number once.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "fathom/core/error.hpp"

namespace fathom::safetensors {

static_assert(std::endian::native == std::endian::little, "fathom: safetensors are little-endian. fix: build for one.");

/// The number formats of safetensors.
enum class dtype : std::uint8_t { f64, f32, f16, bf16, i64, i32, i16, i8, u8, boolean, f8_e4m3, f8_e5m2 };

namespace detail {

struct dtype_facts {
    std::string_view name;
    std::size_t bytes;
};
/// In the order of the enumeration.
inline constexpr dtype_facts dtypes[] = {{"F64", 8}, {"F32", 4},  {"F16", 2},     {"BF16", 2},
                                         {"I64", 8}, {"I32", 4},  {"I16", 2},     {"I8", 1},
                                         {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};

}  // namespace detail

/// The name in files: "F32".
[[nodiscard]] constexpr std::string_view name_of(dtype type) {
    return detail::dtypes[static_cast<std::size_t>(type)].name;
}
/// Bytes of one element.
[[nodiscard]] constexpr std::size_t size_of(dtype type) { return detail::dtypes[static_cast<std::size_t>(type)].bytes; }

/// "[2, 3]"
[[nodiscard]] inline std::string text_of_shape(std::span<const std::int64_t> shape) {
    std::string text = "[";
    for (const std::int64_t extent : shape) text += text_of(text.size() > 1 ? ", " : "", extent);
    return text + ']';
}

/// A named tensor whose bytes lie elsewhere: in a mapped file that was opened, or in memory to be written. Row-major.
struct stored_tensor {
    std::string name;
    dtype type = dtype::f32;
    std::vector<std::int64_t> shape;
    std::span<const std::byte> bytes;
    std::string file;  ///< where it was found, for errors; empty for one to be written

    /// Elements.
    [[nodiscard]] std::size_t size() const { return bytes.size() / size_of(type); }
    /// `FILE: tensor "NAME": `, the start of every error about it.
    [[nodiscard]] std::string place() const {
        return text_of(file, file.empty() ? "" : ": ", "tensor \"", name, "\": ");
    }
};

namespace detail {

inline float float_from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

inline float float_from_f16(std::uint16_t bits) {
    const std::uint32_t sign = (bits & 0x8000U) << 16, exponent = bits >> 10 & 0x1FU, fraction = bits & 0x3FFU;
    if (exponent == 0) {  // zero or subnormal: fraction x 2^-24 is exact in float
        const float size = static_cast<float>(fraction) * 0x1p-24F;
        return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(size));
    }
    const std::uint32_t wide = exponent == 0x1F ? 0xFF : exponent + (127 - 15);
    return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

/// Reads each element as `Stored` (the bytes need not be aligned) and passes it through `decode`.
template <class Stored, class T, class Decode>
void convert(std::span<const std::byte> bytes, std::span<T> out, Decode decode) {
    for (std::size_t i = 0; i < out.size(); ++i) {
        Stored stored;
        std::memcpy(&stored, bytes.data() + i * sizeof stored, sizeof stored);
        out[i] = static_cast<T>(decode(stored));
    }
}

}  // namespace detail

/// Copies the elements into `out` as T: float or double from F64 (rounded to nearest), F32, BF16 and F16; std::int64_t
/// from the integer formats and BOOL. Errors: another number of elements, another format; names file, tensor, found and
/// expected.
template <class T> void read_as(const stored_tensor& from, std::span<T> out) {
    static_assert(
        std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, std::int64_t>,
        "fathom: a stored tensor is read as float, double or std::int64_t. fix: read as one of them and convert.");
    if (out.size() != from.size())
        fail(from.place(), "found ", from.size(), " elements of shape ", text_of_shape(from.shape), ", expected ",
             out.size());
    const auto same = [](auto x) { return x; };
    if constexpr (std::is_floating_point_v<T>) {
        switch (from.type) {
            case dtype::f64:
                return detail::convert<double>(from.bytes, out, same);
            case dtype::f32:
                return detail::convert<float>(from.bytes, out, same);
            case dtype::bf16:
                return detail::convert<std::uint16_t>(from.bytes, out, detail::float_from_bf16);
            case dtype::f16:
                return detail::convert<std::uint16_t>(from.bytes, out, detail::float_from_f16);
            default:
                fail(from.place(), "found dtype ", name_of(from.type), ", expected F64, F32, BF16 or F16");
        }
    } else {
        switch (from.type) {
            case dtype::i64:
                return detail::convert<std::int64_t>(from.bytes, out, same);
            case dtype::i32:
                return detail::convert<std::int32_t>(from.bytes, out, same);
            case dtype::i16:
                return detail::convert<std::int16_t>(from.bytes, out, same);
            case dtype::i8:
                return detail::convert<std::int8_t>(from.bytes, out, same);
            case dtype::u8:
            case dtype::boolean:
                return detail::convert<std::uint8_t>(from.bytes, out, same);
            default:
                fail(from.place(), "found dtype ", name_of(from.type), ", expected I64, I32, I16, I8, U8 or BOOL");
        }
    }
}

}  // namespace fathom::safetensors
