// Several numbers that memory moves at once: the widest access of a GPU is 16 bytes a thread.
#pragma once

namespace fathom::device {

/// N numbers, aligned to their size, as `block.load` and `block.store` move them.
template <class T, int N> struct alignas(sizeof(T) * N) pack {
    static_assert(sizeof(T) * N <= 16 && (N & (N - 1)) == 0, "fathom: a pack holds at most 16 bytes, a power of two.");
    T values[N];
    constexpr T& operator[](int i) { return values[i]; }
    constexpr const T& operator[](int i) const { return values[i]; }
};

}  // namespace fathom::device
