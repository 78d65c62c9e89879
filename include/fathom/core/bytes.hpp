// Sizes as people write them (2_GiB), so that a bound on memory reads like a sentence.
#pragma once

#include <cstdint>

namespace fathom {

/// A number of elements or bytes. Signed, so that differences and loops need no care.
using index = std::int64_t;

inline namespace literals {
consteval index operator""_KiB(unsigned long long n) { return static_cast<index>(n) << 10; }
consteval index operator""_MiB(unsigned long long n) { return static_cast<index>(n) << 20; }
consteval index operator""_GiB(unsigned long long n) { return static_cast<index>(n) << 30; }
}  // namespace literals

/// n rounded up to a multiple of m.
constexpr index round_up(index n, index m) { return (n + m - 1) / m * m; }
/// How many pieces of m it takes to hold n.
constexpr index pieces(index n, index m) { return (n + m - 1) / m; }

}  // namespace fathom
