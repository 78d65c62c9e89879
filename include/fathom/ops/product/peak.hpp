// The machine's own limit for matrix products, measured in the same process, so that a speed can be said as a share of
// it.
#pragma once

#include <algorithm>
#include <fathom/core/seconds_now.hpp>
#include <fathom/device/host/queue.hpp>
#include <fathom/ops/product/gemm.hpp>
#include <vector>

namespace fathom::ops {

/// FLOP/s of oneDNN's sgemm at 1024 x 1024 x 1024 on every worker of the queue at once: the best of `tries` runs, of
/// about 20 ms each.
inline double product_peak(host::queue& queue, int tries = 9) {
    constexpr integer n = 1024;
    const int workers = queue.workers_count();
    const auto size = static_cast<std::size_t>(n * n);
    std::vector<std::vector<float>> operands(static_cast<std::size_t>(workers), std::vector<float>(3 * size, 0.5f));
    double best = 1e30;
    for (int t = 0; t < tries; ++t) {
        const double start = seconds_now();
        queue.enqueue(workers, [&](integer task, int) {
            float* a = operands[static_cast<std::size_t>(task)].data();
            gemm(side::plain, side::transposed, n, n, n, 1.0f, a, n, a + size, n, 0.0f, a + 2 * size, n);
        });
        best = std::min(best, seconds_now() - start);
    }
    return 2.0 * n * n * n * workers / best;
}

}  // namespace fathom::ops
