// Quantisation to E4M3 for GPUs: a warp a tile of a row, a block a square tile.
#pragma once

#include <cmath>
#include <fathom/core/bytes.hpp>
#include <fathom/core/e4m3.hpp>
#include <fathom/device/block/reduce.hpp>

namespace fathom::ops {

/// `quantise` with tiles of 1 x 128: y[M, W], scales[M, pieces(W, 128)], x[M, W].
template <class T> struct quantise_rows_kernel {
    static constexpr const char* name = "quantise_rows";
    static constexpr int threads = 256, columns = 128;
    static constexpr integer blocks(integer rows, integer width) {
        return pieces(rows * pieces(width, columns), threads / 32);
    }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, e4m3> y, device::rows<Block, float> scales,
                                  device::rows<Block, const T> x) const {
        const auto warp = block.warp();
        const integer tile = static_cast<integer>(block.block_rank()) * warp.meta_group_size() + warp.meta_group_rank();
        if (tile >= x.rows * scales.width) return;
        const integer r = tile / scales.width, first = tile % scales.width * columns;
        float held[columns / 32], most = 1e-4f;
        FATHOM_UNROLL
        for (int i = 0; i < columns / 32; ++i) {
            const integer c = first + 32 * i + warp.thread_rank();
            held[i] = c < x.width ? static_cast<float>(x(r, c)) : 0.0f;
            most = most < std::fabs(held[i]) ? std::fabs(held[i]) : most;
        }
        const float scale = device::reduce(warp, most, device::maximum{}) / e4m3::largest;
        if (warp.thread_rank() == 0) scales(r, first / columns) = scale;
        FATHOM_UNROLL
        for (int i = 0; i < columns / 32; ++i) {
            const integer c = first + 32 * i + warp.thread_rank();
            if (c < x.width) y(r, c) = e4m3{held[i] / scale};
        }
    }
};

/// `quantise` with tiles of 128 x 128: y[M, W], scales[pieces(M, 128), pieces(W, 128)], x[M, W].
template <class T> struct quantise_blocks_kernel {
    static constexpr const char* name = "quantise_blocks";
    static constexpr int threads = 256, side = 128, rows_at_once = threads / side;
    static constexpr integer shared_bytes() { return 32 * sizeof(float); }
    static constexpr integer blocks(integer rows, integer width) { return pieces(rows, side) * pieces(width, side); }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, e4m3> y, device::rows<Block, float> scales,
                                  device::rows<Block, const T> x) const {
        const auto scratch = block.template shared<float>(32);
        const integer tile_row = block.block_rank() / scales.width, tile_column = block.block_rank() % scales.width;
        const integer c = tile_column * side + block.thread_rank() % side;
        const integer first = tile_row * side + block.thread_rank() / side, last = tile_row * side + side;
        const integer end = c >= x.width ? 0 : last < x.rows ? last : x.rows;
        float most = 1e-4f;
        for (integer r = first; r < end; r += rows_at_once) {
            const float size = std::fabs(static_cast<float>(x(r, c)));
            most = most < size ? size : most;
        }
        const float scale = device::reduce(block, scratch, most, device::maximum{}) / e4m3::largest;
        if (block.thread_rank() == 0) scales(tile_row, tile_column) = scale;
        for (integer r = first; r < end; r += rows_at_once) y(r, c) = e4m3{static_cast<float>(x(r, c)) / scale};
    }
};

}  // namespace fathom::ops
