// Attention's backward for GPUs on tensor cores: keys and queries each in a launch of their own, so that no sum needs
// atomics and the same input gives the same bits, for two products of seven more than with atomics.
#pragma once

#include <cmath>
#include <cstdint>
#include <fathom/core/bf16.hpp>
#include <fathom/device/block/reduce.hpp>
#include <fathom/ops/attention/around_kernel.hpp>
#include <fathom/ops/attention/detail/kernel_facts.hpp>
#include <fathom/ops/attention/detail/tiles.hpp>
#include <limits>
#include <numbers>

namespace fathom::ops {

/// Second launch of `attention_backward`, after `attention_means_kernel`: the gradients of keys and values, a block a
/// tile of keys and a kv head, a warp 16 keys; it walks over the queries of all heads that read them, in order. dk and
/// dv as `attention_operands` has k and v, shared_parts[tokens, kv_heads * shared_dim], logsumexp and means[heads,
/// tokens]; the rest as the forward has it.
template <int QkDim, int VDim, int QueryTile = 32, int Warps = 4> struct attention_keys_backward_kernel {
    static constexpr const char* name = "attention_keys_backward";
    static constexpr int threads = 32 * Warps, KeyTile = 16 * Warps, N = QueryTile / 8;
    static constexpr int stage_numbers =
        QueryTile * (detail::attention::padded(QkDim) + detail::attention::padded(VDim));
    static_assert(QueryTile % 16 == 0 && QueryTile <= threads && QkDim % 16 == 0 && VDim % 16 == 0,
                  "fathom: tensor cores take attention in tiles of 16.");

    detail::attention::kernel_facts of;

    [[nodiscard]] constexpr bool takes() const { return detail::attention::takes(of, QkDim, VDim); }
    [[nodiscard]] constexpr integer blocks(integer sequences) const {
        return sequences * of.facts.kv_heads * pieces(of.length, KeyTile);
    }
    static constexpr integer shared_bytes() {
        return 128 +
               sizeof(bf16) * (KeyTile * (detail::attention::padded(QkDim) + detail::attention::padded(VDim)) +
                               2 * stage_numbers) +
               2 * QueryTile * sizeof(per_query) + 4 * 128;
    }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, bf16> dk, device::rows<Block, float> shared_parts,
                                  device::rows<Block, bf16> dv, device::rows<Block, const bf16> q,
                                  device::rows<Block, const bf16> k, device::rows<Block, const bf16> shared,
                                  device::rows<Block, const bf16> v, device::rows<Block, const bf16> dout,
                                  device::rows<Block, const float> logsumexp, device::rows<Block, const float> means,
                                  device::rows<Block, const std::int32_t> starts) const {
        namespace in = detail::attention;
        const auto warp = block.warp();
        const int lane = warp.thread_rank(), warp_row = warp.meta_group_rank() * 16;
        const auto scratch = block.template shared<std::int32_t>(32);
        const auto keys = block.template shared<bf16>(KeyTile * in::padded(QkDim));
        const auto values = block.template shared<bf16>(KeyTile * in::padded(VDim));
        const auto stages = block.template shared<bf16>(2 * stage_numbers);
        const auto facts_of_query = block.template shared<per_query>(2 * QueryTile);

        // The first keys are seen by the most queries: their blocks come first.
        const integer of_a_tile = q.rows / of.length * of.facts.kv_heads, group = of.facts.heads / of.facts.kv_heads;
        const int first = static_cast<int>(block.block_rank() / of_a_tile) * KeyTile,
                  length = static_cast<int>(of.length);
        const integer kv_head = block.block_rank() % of.facts.kv_heads;
        const integer origin = block.block_rank() % of_a_tile / of.facts.kv_heads * of.length;
        const int valid = length - first < KeyTile ? length - first : KeyTile;
        const auto operands = of.operands(kv_head * group, origin, k, shared, v);

        int last = first;  // the last query that sees any of these keys
        for (int i = first + block.thread_rank(); i < length; i += block.size())
            if (static_cast<std::int32_t>(starts(0, origin + i)) < first + valid) last = i;
        last = device::reduce(block, scratch, last, device::maximum{});

        const int begin = first / QueryTile * QueryTile, tiles = (last - begin) / QueryTile + 1;
        const auto copy_queries = [&](int step) {
            const integer head = kv_head * group + step / tiles;
            const int from = begin + step % tiles * QueryTile, count = length - from;
            const auto to = stages + step % 2 * stage_numbers;
            in::copy_tile<QueryTile, QkDim>(
                block, to, count, [&](int r, int c) { return q.row(origin + from + r) + (head * QkDim + c); });
            in::copy_tile<QueryTile, VDim>(block, to + QueryTile * in::padded(QkDim), count, [&](int r, int c) {
                return dout.row(origin + from + r) + (head * VDim + c);
            });
            block.commit_copies();
            const int i = block.thread_rank();
            if (i >= QueryTile) return;
            per_query mine{std::numeric_limits<float>::infinity(), 0,
                           0};  // weights of queries that are not there are 0
            if (i < count)
                mine = {static_cast<float>(logsumexp(head, origin + from + i)) * std::numbers::log2e_v<float>,
                        static_cast<float>(means(head, origin + from + i)),
                        static_cast<std::int32_t>(starts(0, origin + from + i))};
            facts_of_query[step % 2 * QueryTile + i] = mine;
        };
        in::copy_tile<KeyTile, QkDim>(block, keys, valid, [&](int r, int c) { return operands.key(first + r, c); });
        in::copy_tile<KeyTile, VDim>(block, values, valid, [&](int r, int c) { return operands.value(first + r, c); });
        copy_queries(0);

        const int steps = tiles * static_cast<int>(group);
        const auto factor = static_cast<float>(of.facts.scale * std::numbers::log2e);
        device::fragment_c key_sums[1][QkDim / 8] = {}, value_sums[1][VDim / 8] = {};
        for (int step = 0; step < steps; ++step) {
            block.wait_copies();
            block.sync();  // this step's queries are there for all, and nobody needs those of the step before
            if (step + 1 < steps) copy_queries(step + 1);
            const auto queries = stages + step % 2 * stage_numbers;
            const auto out_gradients = queries + QueryTile * in::padded(QkDim);
            const int from = begin + step % tiles * QueryTile;
            device::fragment_c weights[1][N] = {}, gradients[1][N] = {};  // [keys, queries]
            in::multiply_rows<QkDim>(warp, weights, keys + warp_row * in::padded(QkDim), queries);
            in::multiply_rows<VDim>(warp, gradients, values + warp_row * in::padded(VDim), out_gradients);
            FATHOM_UNROLL
            for (int n = 0; n < N; ++n) {
                FATHOM_UNROLL
                for (int r = 0; r < 4; ++r) {
                    const int column = 8 * n + device::fragment_c::column(lane, r);
                    const int key = first + warp_row + device::fragment_c::row(lane, r);
                    const per_query query = static_cast<per_query>(facts_of_query[step % 2 * QueryTile + column]);
                    float& weight = weights[0][n].registers[r];
                    const bool seen = key <= from + column && key >= query.start;
                    weight = seen ? std::exp2(weight * factor - query.logsumexp) : 0.0f;
                    gradients[0][n].registers[r] = weight * (gradients[0][n].registers[r] - query.mean);
                }
            }
            in::multiply_columns(block, value_sums, weights, out_gradients);
            in::multiply_columns(block, key_sums, gradients, queries);
        }

        const int rows_left = valid - warp_row;
        const integer own = operands.own, token = origin + first + warp_row;
        const auto scale = static_cast<float>(of.facts.scale);
        in::store_sums(
            block, value_sums, rows_left, [](int, int) { return 1.0f; },
            [&](int r, int c) { return dv.row(token + r) + (kv_head * of.v_head_stride + c); });
        FATHOM_UNROLL
        for (int n = 0; n < QkDim / 8; ++n) {
            FATHOM_UNROLL
            for (int r = 0; r < 4; ++r) {
                const int row = device::fragment_c::row(lane, r);
                const integer c = 8 * n + device::fragment_c::column(lane, r);
                const float sum = key_sums[0][n].registers[r] * scale;
                if (row >= rows_left) continue;
                if (c < own)
                    dk(token + row, kv_head * of.k_head_stride + c) = bf16{sum};
                else
                    shared_parts(token + row, kv_head * of.facts.shared_dim + c - own) = sum;
            }
        }
    }

  private:
    struct per_query {
        float logsumexp, mean;
        std::int32_t start;
    };
};

/// Third launch, before `attention_shared_kernel`: dq[tokens, heads * qk_dim], a block a tile of queries and a head, a
/// warp 16 queries; it walks over keys.
template <int QkDim, int VDim, int KeyTile = 32, int Warps = 4> struct attention_queries_backward_kernel {
    static constexpr const char* name = "attention_queries_backward";
    static constexpr int threads = 32 * Warps, QueryTile = 16 * Warps, N = KeyTile / 8;
    static constexpr int stage_numbers = KeyTile * (detail::attention::padded(QkDim) + detail::attention::padded(VDim));
    static_assert(KeyTile % 16 == 0 && QkDim % 16 == 0 && VDim % 16 == 0,
                  "fathom: tensor cores take attention in tiles of 16.");

    detail::attention::kernel_facts of;

    [[nodiscard]] constexpr bool takes() const { return detail::attention::takes(of, QkDim, VDim); }
    [[nodiscard]] constexpr integer blocks(integer sequences) const {
        return sequences * of.facts.heads * pieces(of.length, QueryTile);
    }
    static constexpr integer shared_bytes() {
        return 128 +
               sizeof(bf16) * (QueryTile * (detail::attention::padded(QkDim) + detail::attention::padded(VDim)) +
                               2 * stage_numbers) +
               3 * 128;
    }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, bf16> dq, device::rows<Block, const bf16> q,
                                  device::rows<Block, const bf16> k, device::rows<Block, const bf16> shared,
                                  device::rows<Block, const bf16> v, device::rows<Block, const bf16> dout,
                                  device::rows<Block, const float> logsumexp, device::rows<Block, const float> means,
                                  device::rows<Block, const std::int32_t> starts) const {
        namespace in = detail::attention;
        const auto warp = block.warp();
        const int lane = warp.thread_rank(), warp_row = warp.meta_group_rank() * 16;
        const auto scratch = block.template shared<std::int32_t>(32);
        const auto queries = block.template shared<bf16>(QueryTile * in::padded(QkDim));
        const auto out_gradients = block.template shared<bf16>(QueryTile * in::padded(VDim));
        const auto stages = block.template shared<bf16>(2 * stage_numbers);

        const integer heads = of.facts.heads, of_a_tile = q.rows / of.length * heads;
        const integer tile = pieces(of.length, QueryTile) - 1 - block.block_rank() / of_a_tile;
        const integer head = block.block_rank() % heads, origin = block.block_rank() % of_a_tile / heads * of.length;
        const integer first = tile * QueryTile;
        const integer valid = of.length - first < QueryTile ? of.length - first : QueryTile;
        const auto operands = of.operands(head, origin, k, shared, v);

        float sum[2], mean[2];
        std::int32_t start[2], lowest = static_cast<std::int32_t>(first + QueryTile);
        for (int half = 0; half < 2; ++half) {
            const integer row = warp_row + 8 * half + lane / 4, token = origin + first + row;
            const bool there = row < valid;
            sum[half] = there ? static_cast<float>(logsumexp(head, token)) * std::numbers::log2e_v<float>
                              : std::numeric_limits<float>::infinity();
            mean[half] = there ? static_cast<float>(means(head, token)) : 0.0f;
            start[half] = there ? static_cast<std::int32_t>(starts(0, token)) : static_cast<std::int32_t>(first + row);
            lowest = start[half] < lowest ? start[half] : lowest;
        }
        lowest = -device::reduce(block, scratch, -lowest, device::maximum{});

        const integer begin = lowest / KeyTile * KeyTile, end = first + valid;
        const auto copy_keys = [&](integer from, integer stage) {
            const auto to = stages + stage * stage_numbers;
            in::copy_tile<KeyTile, QkDim>(block, to, of.length - from,
                                          [&](int r, int c) { return operands.key(from + r, c); });
            in::copy_tile<KeyTile, VDim>(block, to + KeyTile * in::padded(QkDim), of.length - from,
                                         [&](int r, int c) { return operands.value(from + r, c); });
            block.commit_copies();
        };
        in::copy_tile<QueryTile, QkDim>(block, queries, valid,
                                        [&](int r, int c) { return q.row(origin + first + r) + (head * QkDim + c); });
        in::copy_tile<QueryTile, VDim>(block, out_gradients, valid,
                                       [&](int r, int c) { return dout.row(origin + first + r) + (head * VDim + c); });
        copy_keys(begin, 0);

        const auto factor = static_cast<float>(of.facts.scale * std::numbers::log2e);
        device::fragment_c sums[1][QkDim / 8] = {};
        integer stage = 0;
        for (integer from = begin; from < end; from += KeyTile, stage = 1 - stage) {
            block.wait_copies();
            block.sync();  // these keys are there for all, and nobody needs those before
            if (from + KeyTile < end) copy_keys(from + KeyTile, 1 - stage);
            const auto keys = stages + stage * stage_numbers, values = keys + KeyTile * in::padded(QkDim);
            device::fragment_c weights[1][N] = {}, gradients[1][N] = {};  // [queries, keys]
            in::multiply_rows<QkDim>(warp, weights, queries + warp_row * in::padded(QkDim), keys);
            in::multiply_rows<VDim>(warp, gradients, out_gradients + warp_row * in::padded(VDim), values);
            FATHOM_UNROLL
            for (int n = 0; n < N; ++n) {
                FATHOM_UNROLL
                for (int r = 0; r < 4; ++r) {
                    const integer key = from + 8 * n + device::fragment_c::column(lane, r);
                    const integer query = first + warp_row + device::fragment_c::row(lane, r);
                    const bool seen = key <= query && key >= start[r / 2];
                    const float weight = seen ? std::exp2(weights[0][n].registers[r] * factor - sum[r / 2]) : 0.0f;
                    gradients[0][n].registers[r] = weight * (gradients[0][n].registers[r] - mean[r / 2]);
                }
            }
            in::multiply_columns(block, sums, gradients, keys);
        }
        in::store_sums(
            block, sums, valid - warp_row, [&](int, int) { return static_cast<float>(of.facts.scale); },
            [&](int r, int c) { return dq.row(origin + first + warp_row + r) + (head * QkDim + c); });
    }
};

}  // namespace fathom::ops
