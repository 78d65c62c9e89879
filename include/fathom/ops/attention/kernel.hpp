// Attention's forward for GPUs: FlashAttention-2 on tensor cores, with copies that run beside products.
#pragma once

#include <cmath>
#include <cstdint>
#include <fathom/core/bf16.hpp>
#include <fathom/device/block/reduce.hpp>
#include <fathom/ops/attention/detail/kernel_facts.hpp>
#include <fathom/ops/attention/detail/tiles.hpp>
#include <limits>
#include <numbers>

namespace fathom::ops {

/// `attention_forward` over whole sequences in bf16, for heads of QkDim and VDim numbers: a block a tile of queries and
/// a head, a warp QueryTile / Warps queries. The weights are rounded to bf16 before they meet the values. out[tokens,
/// heads * v_dim], logsumexp[heads, tokens], q[tokens, heads * qk_dim], k, shared and v as `attention_operands` has
/// them, starts[1, tokens]. Rows begin at multiples of 16 bytes. Ends the launch at a start outside [0, i]. Dao 2023,
/// "FlashAttention-2", algorithm 1.
template <int QkDim, int VDim, int QueryTile = 128, int KeyTile = 32, int Warps = 4> struct attention_forward_kernel {
    static constexpr const char* name = "attention_forward";
    static constexpr int threads = 32 * Warps;
    static constexpr int M = QueryTile / (16 * Warps), N = KeyTile / 8;  // tiles of a warp: 16 queries, 8 keys
    static_assert(QkDim % 16 == 0 && VDim % 16 == 0 && KeyTile % 16 == 0 && QueryTile % (16 * Warps) == 0,
                  "fathom: tensor cores take attention in tiles of 16.");

    detail::attention::kernel_facts of;

    [[nodiscard]] constexpr bool takes() const { return detail::attention::takes(of, QkDim, VDim); }
    [[nodiscard]] constexpr integer blocks(integer sequences) const {
        return sequences * of.facts.heads * pieces(of.length, QueryTile);
    }
    static constexpr integer shared_bytes() {
        return 128 +
               sizeof(bf16) * ((QueryTile + KeyTile) * detail::attention::padded(QkDim) +
                               KeyTile * detail::attention::padded(VDim)) +
               2 * 128;
    }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, bf16> out, device::rows<Block, float> logsumexp,
                                  device::rows<Block, const bf16> q, device::rows<Block, const bf16> k,
                                  device::rows<Block, const bf16> shared, device::rows<Block, const bf16> v,
                                  device::rows<Block, const std::int32_t> starts) const {
        namespace in = detail::attention;
        constexpr float nothing = -std::numeric_limits<float>::infinity();
        const auto warp = block.warp();
        const int lane = warp.thread_rank(), warp_row = warp.meta_group_rank() * 16 * M;
        const auto scratch = block.template shared<std::int32_t>(32);
        const auto queries = block.template shared<bf16>(QueryTile * in::padded(QkDim));
        const auto keys = block.template shared<bf16>(KeyTile * in::padded(QkDim));
        const auto values = block.template shared<bf16>(KeyTile * in::padded(VDim));

        // The tiles with the most keys come first, so that the last blocks to run are short.
        const integer heads = of.facts.heads, of_a_tile = q.rows / of.length * heads;
        const integer tile = pieces(of.length, QueryTile) - 1 - block.block_rank() / of_a_tile;
        const integer head = block.block_rank() % heads, origin = block.block_rank() % of_a_tile / heads * of.length;
        const integer first = tile * QueryTile;
        const integer valid = of.length - first < QueryTile ? of.length - first : QueryTile;
        const auto operands = of.operands(head, origin, k, shared, v);

        std::int32_t start[M][2], lowest = static_cast<std::int32_t>(first + QueryTile), highest = 0;
        for (int m = 0; m < M; ++m)
            for (int half = 0; half < 2; ++half) {
                const int row = warp_row + 16 * m + 8 * half + lane / 4;
                const auto place = static_cast<std::int32_t>(first + row);
                start[m][half] = row < valid ? static_cast<std::int32_t>(starts(0, origin + place)) : place;
                if (start[m][half] < 0 || start[m][half] > place) block.trap("a document that starts after its token");
                lowest = start[m][half] < lowest ? start[m][half] : lowest;
                highest = start[m][half] > highest ? start[m][half] : highest;
            }
        lowest = -device::reduce(block, scratch, -lowest, device::maximum{});
        highest = device::reduce(block, scratch, highest, device::maximum{});

        const auto copy_keys = [&](integer from) {
            in::copy_tile<KeyTile, QkDim>(block, keys, of.length - from,
                                          [&](int r, int c) { return operands.key(from + r, c); });
            block.commit_copies();
        };
        in::copy_tile<QueryTile, QkDim>(block, queries, valid,
                                        [&](int r, int c) { return q.row(origin + first + r) + (head * QkDim + c); });
        const integer begin = lowest / KeyTile * KeyTile, end = first + valid;
        copy_keys(begin);

        const float factor = static_cast<float>(of.facts.scale * std::numbers::log2e);
        device::fragment_c mixed[M][VDim / 8] = {};
        float most[M][2], sum[M][2] = {};
        for (int m = 0; m < M; ++m) most[m][0] = most[m][1] = nothing;
        for (integer from = begin; from < end; from += KeyTile) {
            block.wait_copies();
            block.sync();  // the keys are there for all, and nobody needs the last values
            in::copy_tile<KeyTile, VDim>(block, values, of.length - from,
                                         [&](int r, int c) { return operands.value(from + r, c); });
            block.commit_copies();
            device::fragment_c scores[M][N] = {};
            in::multiply_rows<QkDim>(warp, scores, queries + warp_row * in::padded(QkDim), keys);
            block.wait_copies();
            block.sync();  // the values are there for all, and nobody needs the keys
            if (from + KeyTile < end) copy_keys(from + KeyTile);
            if (from + KeyTile - 1 > first + warp_row || from < highest)
                mask(scores, start, first + warp_row - from, from, lane);
            soften(warp, scores, factor, most, sum, mixed);
            in::multiply_columns(block, mixed, scores, values);
        }

        for (int m = 0; m < M; ++m)
            for (int half = 0; half < 2; ++half) {
                sum[m][half] += warp.shfl_xor(sum[m][half], 1);
                sum[m][half] += warp.shfl_xor(sum[m][half], 2);
                const int row = warp_row + 16 * m + 8 * half + lane / 4;
                if (row < valid && lane % 4 == 0)
                    logsumexp(head, origin + first + row) =
                        most[m][half] * static_cast<float>(of.facts.scale) + std::log(sum[m][half]);
            }
        in::store_sums(
            block, mixed, valid - warp_row, [&](int m, int half) { return 1 / sum[m][half]; },
            [&](int r, int c) { return out.row(origin + first + warp_row + r) + (head * VDim + c); });
    }

  private:
    /// Query row i of the warp sees the keys [start, i + diagonal] of the tile that begins with key `from`.
    FATHOM_DEVICE static void mask(device::fragment_c (&scores)[M][N], const std::int32_t (&start)[M][2],
                                   integer diagonal, integer from, int lane) {
        FATHOM_UNROLL
        for (int m = 0; m < M; ++m) {
            FATHOM_UNROLL
            for (int n = 0; n < N; ++n) {
                FATHOM_UNROLL
                for (int r = 0; r < 4; ++r) {
                    const int key = 8 * n + device::fragment_c::column(lane, r);
                    if (key > 16 * m + device::fragment_c::row(lane, r) + diagonal || from + key < start[m][r / 2])
                        scores[m][n].registers[r] = -std::numeric_limits<float>::infinity();
                }
            }
        }
    }

    /// Scores become e^(scale * (score - most)); what was summed with an older maximum fades. A row is in four lanes.
    template <class Warp>
    FATHOM_DEVICE static void soften(const Warp& warp, device::fragment_c (&scores)[M][N], float factor,
                                     float (&most)[M][2], float (&sum)[M][2],
                                     device::fragment_c (&mixed)[M][VDim / 8]) {
        FATHOM_UNROLL
        for (int m = 0; m < M; ++m) {
            FATHOM_UNROLL
            for (int half = 0; half < 2; ++half) {
                float highest = most[m][half];
                FATHOM_UNROLL
                for (int n = 0; n < N; ++n) {
                    const float* pair = scores[m][n].registers + 2 * half;
                    highest = highest < pair[0] ? pair[0] : highest;
                    highest = highest < pair[1] ? pair[1] : highest;
                }
                highest = device::maximum{}(highest, warp.shfl_xor(highest, 1));
                highest = device::maximum{}(highest, warp.shfl_xor(highest, 2));
                // A row that has seen no key yet shifts by 0: infinities must not meet.
                const float shift = highest == -std::numeric_limits<float>::infinity() ? 0.0f : highest * factor;
                const float fade = std::exp2(most[m][half] * factor - shift);
                most[m][half] = highest;
                sum[m][half] *= fade;
                FATHOM_UNROLL
                for (int n = 0; n < VDim / 8; ++n) {
                    mixed[m][n].registers[2 * half] *= fade;
                    mixed[m][n].registers[2 * half + 1] *= fade;
                }
                FATHOM_UNROLL
                for (int n = 0; n < N; ++n) {
                    FATHOM_UNROLL
                    for (int i = 0; i < 2; ++i) {
                        float& score = scores[m][n].registers[2 * half + i];
                        score = std::exp2(score * factor - shift);
                        sum[m][half] += score;
                    }
                }
            }
        }
    }
};

}  // namespace fathom::ops
