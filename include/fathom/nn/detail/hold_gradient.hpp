// What a layer's weights need of the gradient of its output, held until they are due: the same in every layer.
#pragma once

#include <fathom/ops/elementwise.hpp>

namespace fathom::nn::detail {

/// d.dy = dy, or a copy of it where `d` was laid out apart: dy is somebody else's by then.
template <class Queue, class Gradient, class Deferred> void hold_gradient(Queue& queue, Gradient dy, Deferred& d) {
    d.dy = dy;
    if (d.kept_dy.empty()) return;
    ops::copy(queue, d.kept_dy, dy);
    d.dy = d.kept_dy;
}

}  // namespace fathom::nn::detail
