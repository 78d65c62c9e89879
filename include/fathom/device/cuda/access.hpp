// What work on a stream touches, said by whoever enqueues it: so that a test can find two pieces of work that nothing
// orders.
#pragma once

#include <fathom/tensor/matrix.hpp>
#include <type_traits>

namespace fathom::cuda {

/// `rows` pieces of `bytes` bytes, `stride` bytes apart. Without data: nothing.
struct access {
    const void* data = nullptr;
    integer rows = 0, bytes = 0, stride = 0;
    bool writes = false;
};

[[nodiscard]] inline access reads(const void* data, integer bytes) { return {data, 1, bytes, bytes, false}; }
[[nodiscard]] inline access writes(const void* data, integer bytes) { return {data, 1, bytes, bytes, true}; }

/// What a kernel does with an argument: it reads what it sees as constant, and may write other numbers in memory.
template <class T> [[nodiscard]] access access_of(const matrix<T>& view) {
    constexpr auto width = static_cast<integer>(sizeof(T));
    return {view.data, view.rows, view.width * width, view.stride * width, !std::is_const_v<T>};
}
template <class T> [[nodiscard]] access access_of(const T&) {
    static_assert(!std::is_pointer_v<T>, "fathom: memory of a kernel is a matrix, so that its size is known.");
    return {};
}

}  // namespace fathom::cuda
