// Sizes as people write them (2_GiB), so that a bound on memory reads like a sentence.
#pragma once

#include <cstdint>

namespace fathom {

/// A number of elements or bytes. Signed, so that differences and loops need no care.
using integer = std::int64_t;

inline namespace literals {
consteval integer operator""_KiB(unsigned long long n) { return static_cast<integer>(n) << 10; }
consteval integer operator""_MiB(unsigned long long n) { return static_cast<integer>(n) << 20; }
consteval integer operator""_GiB(unsigned long long n) { return static_cast<integer>(n) << 30; }
}  // namespace literals

/// n rounded up to a multiple of m.
constexpr integer round_up(integer n, integer m) { return (n + m - 1) / m * m; }
/// How many pieces of m it takes to hold n.
constexpr integer pieces(integer n, integer m) { return (n + m - 1) / m; }

}  // namespace fathom
