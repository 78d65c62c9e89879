// Random numbers that depend on a seed and an index alone, so that every layout and every number of threads draws the
// same.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace fathom {

/// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): four words for a counter and a
/// key.
constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0];
        const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter[2];
        counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
                   static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    return counter;
}

/// A stream of random numbers: `stream` tells one use from another (a parameter's global index, a sampler), `at` is the
/// place in it.
struct random_stream {
    std::uint64_t seed = 0;
    std::uint64_t stream = 0;

    [[nodiscard]] constexpr std::array<std::uint32_t, 4> words(std::uint64_t at) const {
        return philox({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32),
                       static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)},
                      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    }
    /// In [0, 1).
    [[nodiscard]] constexpr double uniform(std::uint64_t at) const { return unit(words(at)[0], words(at)[1]); }
    /// Standard normal (Box and Muller): place 2k and 2k+1 share one draw of words.
    [[nodiscard]] double normal(std::uint64_t at) const {
        const auto w = words(at / 2);
        const double radius = std::sqrt(-2.0 * std::log(1.0 - unit(w[0], w[1])));
        const double angle = 2.0 * std::numbers::pi * unit(w[2], w[3]);
        return radius * (at % 2 == 0 ? std::cos(angle) : std::sin(angle));
    }

  private:
    static constexpr double unit(std::uint32_t high, std::uint32_t low) {
        return static_cast<double>((std::uint64_t{high} << 21) ^ (low >> 11)) * 0x1p-53;
    }
};

}  // namespace fathom
