// A matrix whose axes are named in its type: what layers pass to each other and what products are checked by.
#pragma once

#include <fathom/tensor/axis.hpp>
#include <fathom/tensor/matrix.hpp>
#include <type_traits>

namespace fathom {

/// A view x[Rows, Columns]. Kernels take it as the matrix that it is.
template <class T, class Rows, class Columns> struct tensor : matrix<T> {
    using element = T;
    using rows_axis = Rows;
    using columns_axis = Columns;

    constexpr tensor() = default;
    constexpr tensor(matrix<T> view)
        : matrix<T>(view) {}  // NOLINT(google-explicit-constructor): an arena's piece gets its meaning here
    constexpr operator tensor<const T, Rows, Columns>() const  // NOLINT(google-explicit-constructor)
        requires(!std::is_const_v<T>) {
        return tensor<const T, Rows, Columns>{static_cast<matrix<const T>>(*this)};
    }
    /// Columns [first, first + count), which mean `Part`.
    template <class Part> [[nodiscard]] constexpr tensor<T, Rows, Part> part(integer first, integer count) const {
        return {this->columns_at(first, count)};
    }
};

namespace rule {

/// y[R, O] = x[R, I] w[O, I]^T
template <class Y, class X, class W> struct axes_of_a_product {
    static_assert(std::is_same_v<typename Y::rows_axis, typename X::rows_axis> &&
                      std::is_same_v<typename Y::columns_axis, typename W::rows_axis> &&
                      std::is_same_v<typename X::columns_axis, typename W::columns_axis>,
                  "fathom: the axes of a product must meet. fix: y[rows, out] = x[rows, in] w[out, in]; give each "
                  "operand those axes.");
    static constexpr bool holds = true;
};

/// Activations and weights of one product share a number format.
template <class X, class W> struct formats_of_a_product {
    static_assert(std::is_same_v<std::remove_const_t<typename X::element>, std::remove_const_t<typename W::element>>,
                  "fathom: a product mixes number formats. fix: convert one operand, or declare both in the same "
                  "format in precision<>.");
    static constexpr bool holds = true;
};

}  // namespace rule
}  // namespace fathom
