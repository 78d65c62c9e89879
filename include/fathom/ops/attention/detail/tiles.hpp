// Tiles of attention on tensor cores: from global to shared memory, and products of a warp's rows with all of a tile's.
#pragma once

#include <cstdint>
#include <fathom/core/bf16.hpp>
#include <fathom/core/bytes.hpp>
#include <fathom/device/block/fragment.hpp>
#include <fathom/device/block/memory.hpp>
#include <fathom/device/block/pack.hpp>
#include <fathom/device/block/qualifier.hpp>

namespace fathom::ops::detail::attention {

/// The stride of rows in shared memory: eight rows of an ldmatrix fall in different banks.
constexpr int padded(int columns) { return columns + 8; }

/// Starts to copy Rows x Columns numbers; from_row(r) gives the place of column c of row r by from(r, c). Rows from
/// `valid` on become zeros.
template <int Rows, int Columns, class Block, class From>
FATHOM_DEVICE void copy_tile(const Block& block, device::shared<Block, bf16> to, integer valid, const From& from) {
    constexpr int parts = Columns / 8;
    for (int i = block.thread_rank(); i < Rows * parts; i += block.size()) {
        const int r = i / parts, c = i % parts * 8;
        block.copy_async(to + (r * padded(Columns) + c), from(r < valid ? r : 0, c), r < valid);
    }
}

/// c[16 M, 8 N] += a b^T over Depth columns, a[16 M, Depth] and b[8 N, Depth] in shared memory.
template <int Depth, int M, int N, class Warp, class Shared>
FATHOM_DEVICE void multiply_rows(const Warp& warp, device::fragment_c (&c)[M][N], Shared a, Shared b) {
    const int lane = warp.thread_rank();
    const auto a_row = a + (lane % 16 * padded(Depth) + lane / 16 * 8);
    const auto b_row = b + ((lane / 16 * 8 + lane % 8) * padded(Depth) + lane / 8 % 2 * 8);
    FATHOM_UNROLL
    for (int k = 0; k < Depth; k += 16) {
        device::fragment_a left[M];
        FATHOM_UNROLL
        for (int m = 0; m < M; ++m) {
            const auto four = warp.ldmatrix(a_row + (16 * m * padded(Depth) + k));
            left[m] = {{four[0], four[1], four[2], four[3]}};
        }
        FATHOM_UNROLL
        for (int n = 0; n < N; n += 2) {
            const auto four = warp.ldmatrix(b_row + (8 * n * padded(Depth) + k));
            FATHOM_UNROLL
            for (int m = 0; m < M; ++m) {
                warp.mma(c[m][n], left[m], {{four[0], four[1]}});
                warp.mma(c[m][n + 1], left[m], {{four[2], four[3]}});
            }
        }
    }
}

/// c[16 M, 8 N] += p b, p[16 M, 8 P] as sums of an earlier product, rounded; b[8 P, 8 N] in shared memory.
template <int M, int N, int P, class Block, class Shared>
FATHOM_DEVICE void multiply_columns(const Block& block, device::fragment_c (&c)[M][N],
                                    const device::fragment_c (&p)[M][P], Shared b) {
    const auto warp = block.warp();
    const int lane = warp.thread_rank();
    const auto b_row = b + (lane % 16 * padded(8 * N) + lane / 16 * 8);
    FATHOM_UNROLL
    for (int k = 0; k < P; k += 2) {
        device::fragment_a left[M];
        FATHOM_UNROLL
        for (int m = 0; m < M; ++m) {
            const float *low = p[m][k].registers, *high = p[m][k + 1].registers;
            left[m] = {{block.round_pair(low[0], low[1]), block.round_pair(low[2], low[3]),
                        block.round_pair(high[0], high[1]), block.round_pair(high[2], high[3])}};
        }
        FATHOM_UNROLL
        for (int n = 0; n < N; n += 2) {
            const auto four = warp.ldmatrix(b_row + (8 * k * padded(8 * N) + 8 * n), true);
            FATHOM_UNROLL
            for (int m = 0; m < M; ++m) {
                warp.mma(c[m][n], left[m], {{four[0], four[1]}});
                warp.mma(c[m][n + 1], left[m], {{four[2], four[3]}});
            }
        }
    }
}

/// Stores the sums c[16 M, 8 N] times `factor(row)` in bf16: to(row, column) is the place of two numbers, asked for
/// rows below `valid`.
template <int M, int N, class Block, class Factor, class To>
FATHOM_DEVICE void store_sums(const Block& block, const device::fragment_c (&c)[M][N], integer valid,
                              const Factor& factor, const To& to) {
    const int lane = block.warp().thread_rank();
    FATHOM_UNROLL
    for (int m = 0; m < M; ++m) {
        FATHOM_UNROLL
        for (int half = 0; half < 2; ++half) {
            const int row = 16 * m + 8 * half + lane / 4;
            if (row >= valid) continue;
            const float by = factor(m, half);
            FATHOM_UNROLL
            for (int n = 0; n < N; ++n) {
                const float* sums = c[m][n].registers + 2 * half;
                block.store(to(row, 8 * n + lane % 4 * 2),
                            device::pack<bf16, 2>{{bf16{sums[0] * by}, bf16{sums[1] * by}}});
            }
        }
    }
}

}  // namespace fathom::ops::detail::attention
