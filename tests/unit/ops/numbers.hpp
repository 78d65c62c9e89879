// What the tests of operations share: matrices that own their numbers, a queue, and two ways to compare.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fathom/core/number.hpp>
#include <fathom/core/random_stream.hpp>
#include <fathom/device/host/queue.hpp>
#include <fathom/tensor/matrix.hpp>
#include <vector>

namespace fathom::test {

/// A matrix with its memory: normal numbers times `size` (rounded to float first, so that formats can be compared), or
/// zeros. `gap` more numbers lie between its rows.
template <class T> struct numbers {
    integer rows, width, gap;
    std::vector<T> memory;

    numbers(integer r, integer w, std::uint64_t seed = 0, double size = 1, integer between = 0)
        : rows(r), width(w), gap(between), memory(static_cast<std::size_t>(r * (w + between))) {
        const fathom::random_stream source{seed, 7};
        for (integer i = 0; seed != 0 && i < rows; ++i)
            for (integer j = 0; j < width; ++j)
                view()(i, j) = static_cast<T>(static_cast<float>(
                    bf16{static_cast<float>(size * source.normal(static_cast<std::uint64_t>(i * width + j)))}));
    }
    matrix<T> view() { return {memory.data(), rows, width, width + gap}; }
    T* data() { return memory.data(); }
    double operator()(integer r, integer c) { return static_cast<double>(view()(r, c)); }
};

/// A host queue with so many workers, each with so much scratch.
struct pool {
    host::workers threads;
    std::vector<std::byte> scratch;
    host::queue queue;
    explicit pool(int count, integer scratch_bytes = 0)
        : threads(count),
          scratch(static_cast<std::size_t>(count * round_up(scratch_bytes, 64) + 64)),
          queue(threads, scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64) % 64,
                round_up(scratch_bytes, 64)) {}
};

/// The largest difference over the largest magnitude of `expected`.
template <class T, class U> double distance(numbers<T>& found, numbers<U>& expected) {
    double apart = 0, largest = 1e-300;
    for (integer r = 0; r < expected.rows; ++r)
        for (integer c = 0; c < expected.width; ++c) {
            const double difference = std::fabs(found(r, c) - expected(r, c));
            apart = std::isnan(difference) ? INFINITY : std::max(apart, difference);
            largest = std::max(largest, std::fabs(expected(r, c)));
        }
    return apart / largest;
}

template <class T> bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// How far results in T may be from results in double on the same inputs.
template <class T> inline constexpr double tolerance = sizeof(T) == 8 ? 1e-13 : sizeof(T) == 4 ? 2e-6 : 1e-2;

/// The slope of loss() as *at moves, by central differences.
template <class Loss> double slope(double* at, Loss&& loss) {
    constexpr double step = 1e-5;
    const double held = *at;
    *at = held + step;
    const double above = loss();
    *at = held - step;
    const double below = loss();
    *at = held;
    return (above - below) / (2 * step);
}

}  // namespace fathom::test
