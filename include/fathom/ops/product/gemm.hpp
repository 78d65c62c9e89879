// The products of one task: oneDNN in float, one plain order of summation in double.
#pragma once

#include <dnnl.h>

#include <fathom/core/bytes.hpp>
#include <fathom/core/error.hpp>
#include <fathom/tensor/matrix.hpp>

namespace fathom::ops {

enum class side : char { plain = 'N', transposed = 'T' };

/// c[m, n] = alpha * op(a)[m, k] op(b)[k, n] + beta * c, on the calling thread. With beta 0, c is not read.
inline void gemm(side a_side, side b_side, integer m, integer n, integer k, float alpha, const float* a, integer lda,
                 const float* b, integer ldb, float beta, float* c, integer ldc) {
    if (m == 0 || n == 0) return;
    if (k == 0) {  // oneDNN leaves c as it is
        for (integer i = 0; i < m; ++i)
            for (integer j = 0; j < n; ++j) c[i * ldc + j] = beta == 0 ? 0.0f : beta * c[i * ldc + j];
        return;
    }
    const auto status =
        dnnl_sgemm(static_cast<char>(a_side), static_cast<char>(b_side), m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    if (status != dnnl_success)
        fail("oneDNN refused a product of ", m, " x ", n, " x ", k, " (status ", static_cast<int>(status), ")");
}

namespace detail {

/// Eight neighbouring columns of a row, so that every element keeps its own sum while the machine works on all eight.
using eight_doubles = double __attribute__((vector_size(64)));

/// c[Rows, width <= 8] = beta * c + alpha * op(a)[Rows, k] b[k, 8].
template <int Rows>
void gemm_strip(integer k, integer width, double alpha, const double* a, integer a_row, integer a_step,
                const eight_doubles* b, double beta, double* c, integer ldc) {
    eight_doubles sums[Rows]{};
    if (beta != 0)
        for (int i = 0; i < Rows; ++i)
            for (integer j = 0; j < width; ++j) sums[i][j] = beta * c[i * ldc + j];
    for (integer l = 0; l < k; ++l)
        for (int i = 0; i < Rows; ++i) sums[i] += alpha * a[i * a_row + l * a_step] * b[l];
    for (int i = 0; i < Rows; ++i)
        for (integer j = 0; j < width; ++j) c[i * ldc + j] = sums[i][j];
}

}  // namespace detail

/// The same in double, which oneDNN does not have. Every element sums k in order whatever the shape, so a product that
/// is cut in pieces equals the whole one bit for bit: that is what the comparisons in double need, and why it is not a
/// library's.
inline void gemm(side a_side, side b_side, integer m, integer n, integer k, double alpha, const double* a, integer lda,
                 const double* b, integer ldb, double beta, double* c, integer ldc) {
    constexpr integer depth = 128;
    detail::eight_doubles columns[depth];
    const integer a_row = a_side == side::plain ? lda : 1, a_step = a_side == side::plain ? 1 : lda;
    const integer b_row = b_side == side::plain ? ldb : 1, b_column = b_side == side::plain ? 1 : ldb;
    for (integer first = 0; first == 0 || first < k; first += depth) {
        const integer some = k - first < depth ? k - first : depth;
        const double* left = a + first * a_step;
        for (integer j = 0; j < n; j += 8) {
            const integer width = n - j < 8 ? n - j : 8;
            for (integer l = 0; l < some; ++l) {
                columns[l] = detail::eight_doubles{};
                for (integer w = 0; w < width; ++w) columns[l][w] = b[(first + l) * b_row + (j + w) * b_column];
            }
            integer i = 0;
            for (; i + 4 <= m; i += 4)
                detail::gemm_strip<4>(some, width, alpha, left + i * a_row, a_row, a_step, columns, beta,
                                      c + i * ldc + j, ldc);
            for (; i < m; ++i)
                detail::gemm_strip<1>(some, width, alpha, left + i * a_row, a_row, a_step, columns, beta,
                                      c + i * ldc + j, ldc);
        }
        beta = 1;
    }
}

}  // namespace fathom::ops
