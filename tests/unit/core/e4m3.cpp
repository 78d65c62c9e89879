#include <doctest/doctest.h>

#include <cmath>
#include <fathom/core/e4m3.hpp>
#include <initializer_list>

namespace fathom::test {

TEST_CASE("every number of E4M3 is what its bits say, and comes back as it was") {
    for (int bits = 0; bits < 256; ++bits) {
        e4m3 number;
        number.bits = static_cast<std::uint8_t>(bits);
        const auto value = static_cast<float>(number);
        const int exponent = bits >> 3 & 15, mantissa = bits & 7;
        if ((bits & 0x7f) == 0x7f) {
            CHECK(std::isnan(value));
        } else {
            const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                             : std::ldexp(1 + static_cast<float>(mantissa) / 8, exponent - 7);
            CHECK(value == (bits < 128 ? size : -size));
            CHECK(std::signbit(value) == (bits >= 128));
        }
        CHECK(static_cast<int>(e4m3{value}.bits) == bits);
    }
}

TEST_CASE("E4M3 rounds to nearest, ties to even, and ends at 448") {
    for (int bits = 0; bits < 0x7e; ++bits) {  // a number and the next larger one
        e4m3 low, high;
        low.bits = static_cast<std::uint8_t>(bits), high.bits = static_cast<std::uint8_t>(bits + 1);
        const auto a = static_cast<float>(low), b = static_cast<float>(high), middle = (a + b) / 2;
        CHECK(static_cast<int>(e4m3{middle}.bits) == (bits % 2 == 0 ? bits : bits + 1));
        CHECK(static_cast<int>(e4m3{std::nextafter(middle, 0.0f)}.bits) == bits);
        CHECK(static_cast<int>(e4m3{std::nextafter(middle, b)}.bits) == bits + 1);
        CHECK(static_cast<int>(e4m3{-std::nextafter(middle, b)}.bits) == bits + 1 + 128);
    }
    for (const float large : {448.0f, 449.0f, 464.0f, 1e30f, INFINITY}) {
        CHECK(static_cast<float>(e4m3{large}) == 448);
        CHECK(static_cast<float>(e4m3{-large}) == -448);
    }
    CHECK(static_cast<int>(e4m3{0.0f}.bits) == 0);
    CHECK(static_cast<int>(e4m3{-0.0f}.bits) == 128);
    static_assert(static_cast<float>(e4m3{0.3f}) == 0.3125f);
}

}  // namespace fathom::test
