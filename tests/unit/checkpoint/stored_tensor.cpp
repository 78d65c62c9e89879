#include "fathom/checkpoint/stored_tensor.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "../scratch_folder.hpp"

namespace st = fathom::safetensors;
using fathom::test::message_of;

namespace {

template <class T> st::stored_tensor as_tensor(st::dtype type, const std::vector<T>& values) {
    return {"w", type, {static_cast<std::int64_t>(values.size())}, std::as_bytes(std::span{values}), "f.safetensors"};
}
template <class To> std::vector<To> read(const st::stored_tensor& from) {
    std::vector<To> out(from.size());
    st::read_as<To>(from, out);
    return out;
}

/// The value of a small float format by its definition.
double value_of(unsigned bits, int exponent_bits, int fraction_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1, all_ones = (1 << exponent_bits) - 1;
    const int exponent = static_cast<int>(bits >> fraction_bits) & all_ones;
    const double fraction = std::ldexp(bits & ((1U << fraction_bits) - 1), -fraction_bits);
    const double sign = bits >> (exponent_bits + fraction_bits) ? -1 : 1;
    if (exponent == all_ones) return fraction > 0 ? std::nan("") : sign * INFINITY;
    return sign * std::ldexp(fraction + (exponent > 0), (exponent > 0 ? exponent : 1) - bias);
}

}  // namespace

TEST_CASE("every bf16 and f16 number is read exactly") {
    std::vector<std::uint16_t> all(65536);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
    const auto brain = read<double>(as_tensor(st::dtype::bf16, all)),
               half = read<double>(as_tensor(st::dtype::f16, all));
    const auto half_float = read<float>(as_tensor(st::dtype::f16, all));
    std::size_t wrong = 0;
    const auto same = [](double a, double b) {
        return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
    };
    for (unsigned i = 0; i < all.size(); ++i)
        wrong +=
            !same(brain[i], value_of(i, 8, 7)) || !same(half[i], value_of(i, 5, 10)) || !same(half_float[i], half[i]);
    CHECK(wrong == 0);
}

TEST_CASE("wide formats are exact or rounded to nearest") {
    CHECK(read<double>(as_tensor<double>(st::dtype::f64, {0.1, -3})) == std::vector<double>{0.1, -3});
    CHECK(read<float>(as_tensor<double>(st::dtype::f64, {0.1, -3})) == std::vector<float>{0.1F, -3});
    CHECK(read<double>(as_tensor<float>(st::dtype::f32, {0.1F})) == std::vector<double>{0.1F});
    CHECK(read<std::int64_t>(as_tensor<std::int64_t>(st::dtype::i64, {INT64_MIN, 7})) ==
          std::vector<std::int64_t>{INT64_MIN, 7});
    CHECK(read<std::int64_t>(as_tensor<std::int32_t>(st::dtype::i32, {-5})) == std::vector<std::int64_t>{-5});
    CHECK(read<std::int64_t>(as_tensor<std::int16_t>(st::dtype::i16, {-5})) == std::vector<std::int64_t>{-5});
    CHECK(read<std::int64_t>(as_tensor<std::int8_t>(st::dtype::i8, {-5})) == std::vector<std::int64_t>{-5});
    CHECK(read<std::int64_t>(as_tensor<std::uint8_t>(st::dtype::u8, {251})) == std::vector<std::int64_t>{251});
    CHECK(read<std::int64_t>(as_tensor<std::uint8_t>(st::dtype::boolean, {0, 1})) == std::vector<std::int64_t>{0, 1});
}

TEST_CASE("elements need not be aligned") {
    std::vector<std::byte> bytes(1 + 2 * sizeof(double));
    const double values[2] = {1.5, -2.5};
    std::memcpy(bytes.data() + 1, values, sizeof values);
    CHECK(read<double>({"w", st::dtype::f64, {2}, std::span{bytes}.subspan(1), ""}) == std::vector{1.5, -2.5});
}

TEST_CASE("a wrong size or format is refused by name") {
    const std::vector<float> two{1, 2};
    const auto tensor = as_tensor(st::dtype::f32, two);
    std::vector<double> three(3);
    std::vector<std::int64_t> integers(2);
    CHECK(message_of([&] { st::read_as<double>(tensor, three); }) ==
          "f.safetensors: tensor \"w\": found 2 elements of shape [2], expected 3");
    CHECK(message_of([&] { st::read_as<std::int64_t>(tensor, integers); }) ==
          "f.safetensors: tensor \"w\": found dtype F32, expected I64, I32, I16, I8, U8 or BOOL");
    const std::vector<std::uint8_t> eights(3);
    CHECK(message_of([&] { st::read_as<double>(as_tensor(st::dtype::f8_e4m3, eights), three); }) ==
          "f.safetensors: tensor \"w\": found dtype F8_E4M3, expected F64, F32, BF16 or F16");
}
