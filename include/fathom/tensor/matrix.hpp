// The one shape that kernels see: rows of numbers at a stride, so that heads, parts and chunks are views and never
// copies.
#pragma once

#include <fathom/core/bytes.hpp>
#include <type_traits>

namespace fathom {

/// A view of `rows` x `width` numbers; row r starts at data + r * stride. Owns nothing.
template <class T> struct matrix {
    T* data = nullptr;
    integer rows = 0;
    integer width = 0;
    integer stride = 0;

    constexpr matrix() = default;
    constexpr matrix(T* first, integer row_count, integer row_width) : matrix(first, row_count, row_width, row_width) {}
    constexpr matrix(T* first, integer row_count, integer row_width, integer row_stride)
        : data(first), rows(row_count), width(row_width), stride(row_stride) {}
    /// A view to read is a view to read constants.
    constexpr operator matrix<const T>() const  // NOLINT(google-explicit-constructor)
        requires(!std::is_const_v<T>) {
        return {data, rows, width, stride};
    }

    constexpr T* row(integer r) const { return data + r * stride; }
    constexpr T& operator()(integer r, integer c) const { return data[r * stride + c]; }
    /// Rows [first, first + count).
    [[nodiscard]] constexpr matrix rows_at(integer first, integer count) const {
        return {data == nullptr ? nullptr : data + first * stride, count, width, stride};
    }
    /// Columns [first, first + count).
    [[nodiscard]] constexpr matrix columns_at(integer first, integer count) const {
        return {data == nullptr ? nullptr : data + first, rows, count, stride};
    }
    [[nodiscard]] constexpr bool empty() const { return data == nullptr || rows == 0; }
    [[nodiscard]] constexpr integer size() const { return rows * width; }
    /// Whether the rows follow each other without a gap.
    [[nodiscard]] constexpr bool contiguous() const { return stride == width || rows <= 1; }
};

/// A matrix of one row: biases, gains, one number a token.
template <class T> constexpr matrix<T> vector_view(T* data, integer size) { return {data, 1, size, size}; }

}  // namespace fathom
