// Products over named axes: the one place where a layer's axes meet a kernel's numbers.
#pragma once

#include <fathom/ops/product.hpp>
#include <fathom/tensor/tensor.hpp>

namespace fathom::nn {

/// y[R, O] (+)= x[R, I] w[O, I]^T
template <class Queue, class Y, class X, class W> void project(Queue& queue, Y y, X x, W w, bool accumulate = false) {
    static_assert(rule::axes_of_a_product<Y, X, W>::holds && rule::formats_of_a_product<X, W>::holds);
    ops::product(queue, y, x, w, accumulate);
}

/// dx[R, I] (+)= dy[R, O] w[O, I]
template <class Queue, class X, class Y, class W>
void project_input(Queue& queue, X dx, Y dy, W w, bool accumulate = false) {
    static_assert(rule::axes_of_a_product<Y, X, W>::holds && rule::formats_of_a_product<X, W>::holds);
    ops::product_input(queue, dx, dy, w, accumulate);
}

/// dw[O, I] += dy[R, O]^T x[R, I]
template <class Queue, class W, class Y, class X> void project_weight(Queue& queue, W dw, Y dy, X x) {
    static_assert(rule::axes_of_a_product<Y, X, W>::holds);
    ops::product_weight(queue, dw, dy, x);
}

}  // namespace fathom::nn
