// The products of one task: oneDNN in float, one plain order of summation in double.
#pragma once

#include <dnnl.h>

#include <fathom/core/bytes.hpp>
#include <fathom/core/error.hpp>
#include <fathom/tensor/matrix.hpp>

namespace fathom::ops {

enum class side : char { plain = 'N', transposed = 'T' };

/// c[m, n] = alpha * op(a)[m, k] op(b)[k, n] + beta * c, on the calling thread. With beta 0, c is not read.
inline void gemm(side a_side, side b_side, index m, index n, index k, float alpha, const float* a, index lda,
                 const float* b, index ldb, float beta, float* c, index ldc) {
    if (m == 0 || n == 0) return;
    const auto status =
        dnnl_sgemm(static_cast<char>(a_side), static_cast<char>(b_side), m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    if (status != dnnl_success)
        fail("oneDNN refused a product of ", m, " x ", n, " x ", k, " (status ", static_cast<int>(status), ")");
}

/// The same in double, which oneDNN does not have. Every element sums k in order whatever the shape, so a product that
/// is cut in pieces equals the whole one bit for bit: that is what the comparisons in double need, and why it is not a
/// library's.
inline void gemm(side a_side, side b_side, index m, index n, index k, double alpha, const double* a, index lda,
                 const double* b, index ldb, double beta, double* c, index ldc) {
    for (index i = 0; i < m; ++i) {
        double* out = c + i * ldc;
        if (beta == 0)
            for (index j = 0; j < n; ++j) out[j] = 0;
        else if (beta != 1)
            for (index j = 0; j < n; ++j) out[j] *= beta;
        if (b_side == side::plain) {
            for (index l = 0; l < k; ++l) {
                const double left = alpha * (a_side == side::plain ? a[i * lda + l] : a[l * lda + i]);
                for (index j = 0; j < n; ++j) out[j] += left * b[l * ldb + j];
            }
        } else {
            for (index j = 0; j < n; ++j) {
                double sum = 0;
                for (index l = 0; l < k; ++l)
                    sum += (a_side == side::plain ? a[i * lda + l] : a[l * lda + i]) * b[j * ldb + l];
                out[j] += alpha * sum;
            }
        }
    }
}

}  // namespace fathom::ops
