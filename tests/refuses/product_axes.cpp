// A product over the wrong axis would run whenever sizes happen to agree.
#include <fathom/device/host/queue.hpp>
#include <fathom/nn/project.hpp>

using namespace fathom;

void multiply(host::queue& queue, tensor<float, axis::tokens, axis::queries> y,
              tensor<float, axis::tokens, axis::hidden> x, tensor<const float, axis::queries, axis::hidden> w) {
    nn::project(queue, y, x, w);
#ifdef REFUSED
    // refused: fathom: the axes of a product must meet. fix: y[rows, out] = x[rows, in] w[out, in]; give each
    //     operand those axes.
    nn::project(queue, x, y, w);
#endif
}
