// Attention for GPUs without tensor cores, in any number format: for float and double, which train to be compared with
// other machines and not to be fast.
#pragma once

#include <cmath>
#include <cstdint>
#include <fathom/core/number.hpp>
#include <fathom/device/block/reduce.hpp>
#include <fathom/ops/attention/detail/kernel_facts.hpp>
#include <limits>

namespace fathom::ops {

namespace detail::attention {

/// Numbers lane, lane + 32, ... of a row of Width, held by the lanes of a warp; from(c) is the place of number c.
template <int Width, class A, class From>
FATHOM_DEVICE void take_row(int lane, A (&held)[Width / 32], const From& from) {
    FATHOM_UNROLL
    for (int i = 0; i < Width / 32; ++i) held[i] = static_cast<A>(from(32 * i + lane)[0]);
}

template <int Width, class Warp, class A>
FATHOM_DEVICE A dot(const Warp& warp, const A (&a)[Width], const A (&b)[Width]) {
    A sum{};
    FATHOM_UNROLL
    for (int i = 0; i < Width; ++i) sum += a[i] * b[i];
    return device::reduce(warp, sum, device::plus{});
}

/// Whether plain kernels take such heads.
constexpr bool takes_plain(const attention_facts& facts, integer qk_dim, integer v_dim) {
    return facts.qk_dim == qk_dim && facts.v_dim == v_dim;
}

}  // namespace detail::attention

/// `attention_forward` over whole sequences, a warp a query and a head; arguments as `attention_forward_kernel` has
/// them.
template <class T, int QkDim, int VDim> struct attention_plain_forward_kernel {
    using A = accumulator_t<T>;
    static constexpr const char* name = "attention_plain_forward";
    static constexpr int threads = 128;
    static_assert(QkDim % 32 == 0 && VDim % 32 == 0, "fathom: a warp takes heads in multiples of 32.");

    detail::attention::kernel_facts of;

    [[nodiscard]] constexpr bool takes() const { return detail::attention::takes_plain(of.facts, QkDim, VDim); }
    [[nodiscard]] constexpr integer blocks(integer sequences) const {
        return pieces(sequences * of.length * of.facts.heads, threads / 32);
    }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, T> out, device::rows<Block, A> logsumexp,
                                  device::rows<Block, const T> q, device::rows<Block, const T> k,
                                  device::rows<Block, const T> shared, device::rows<Block, const T> v,
                                  device::rows<Block, const std::int32_t> starts) const {
        namespace in = detail::attention;
        const auto warp = block.warp();
        const int lane = warp.thread_rank();
        const integer i = static_cast<integer>(block.block_rank()) * warp.meta_group_size() + warp.meta_group_rank();
        const integer token = i / of.facts.heads, head = i % of.facts.heads;
        if (token >= q.rows) return;
        const integer place = token % of.length, start = static_cast<std::int32_t>(starts(0, token));
        if (start < 0 || start > place) block.trap("a document that starts after its token");
        const auto operands = of.operands(head, token - place, k, shared, v);
        const auto scale = static_cast<A>(of.facts.scale);
        A query[QkDim / 32], key[QkDim / 32], value[VDim / 32], mixed[VDim / 32] = {};
        in::take_row<QkDim>(lane, query, [&](int c) { return q.row(token) + (head * QkDim + c); });
        A most = -std::numeric_limits<A>::infinity(), sum{};
        for (integer j = start; j <= place; ++j) {
            in::take_row<QkDim>(lane, key, [&](int c) { return operands.key(j, c); });
            in::take_row<VDim>(lane, value, [&](int c) { return operands.value(j, c); });
            const A score = in::dot(warp, query, key) * scale, highest = most < score ? score : most;
            const A fade = std::exp(most - highest), weight = std::exp(score - highest);
            most = highest;
            sum = sum * fade + weight;
            for (int c = 0; c < VDim / 32; ++c) mixed[c] = mixed[c] * fade + weight * value[c];
        }
        for (int c = 0; c < VDim / 32; ++c) out(token, head * VDim + 32 * c + lane) = static_cast<T>(mixed[c] / sum);
        if (lane == 0) logsumexp(head, token) = most + std::log(sum);
    }
};

/// The third launch of `attention_backward` in place of `attention_queries_backward_kernel`.
template <class T, int QkDim, int VDim> struct attention_plain_queries_backward_kernel {
    using A = accumulator_t<T>;
    static constexpr const char* name = "attention_plain_queries_backward";
    static constexpr int threads = 128;

    detail::attention::kernel_facts of;

    [[nodiscard]] constexpr bool takes() const { return detail::attention::takes_plain(of.facts, QkDim, VDim); }
    [[nodiscard]] constexpr integer blocks(integer sequences) const {
        return pieces(sequences * of.length * of.facts.heads, threads / 32);
    }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, T> dq, device::rows<Block, const T> q,
                                  device::rows<Block, const T> k, device::rows<Block, const T> shared,
                                  device::rows<Block, const T> v, device::rows<Block, const T> dout,
                                  device::rows<Block, const A> logsumexp, device::rows<Block, const A> means,
                                  device::rows<Block, const std::int32_t> starts) const {
        namespace in = detail::attention;
        const auto warp = block.warp();
        const int lane = warp.thread_rank();
        const integer i = static_cast<integer>(block.block_rank()) * warp.meta_group_size() + warp.meta_group_rank();
        const integer token = i / of.facts.heads, head = i % of.facts.heads;
        if (token >= q.rows) return;
        const integer place = token % of.length;
        const auto operands = of.operands(head, token - place, k, shared, v);
        const auto scale = static_cast<A>(of.facts.scale);
        const A above = static_cast<A>(logsumexp(head, token)), mean = static_cast<A>(means(head, token));
        A query[QkDim / 32], key[QkDim / 32], up[VDim / 32], value[VDim / 32], slope[QkDim / 32] = {};
        in::take_row<QkDim>(lane, query, [&](int c) { return q.row(token) + (head * QkDim + c); });
        in::take_row<VDim>(lane, up, [&](int c) { return dout.row(token) + (head * VDim + c); });
        for (integer j = static_cast<std::int32_t>(starts(0, token)); j <= place; ++j) {
            in::take_row<QkDim>(lane, key, [&](int c) { return operands.key(j, c); });
            in::take_row<VDim>(lane, value, [&](int c) { return operands.value(j, c); });
            const A weight = std::exp(in::dot(warp, query, key) * scale - above);
            const A change = weight * (in::dot(warp, up, value) - mean);
            for (int c = 0; c < QkDim / 32; ++c) slope[c] += change * key[c];
        }
        for (int c = 0; c < QkDim / 32; ++c) dq(token, head * QkDim + 32 * c + lane) = static_cast<T>(slope[c] * scale);
    }
};

/// The second launch of `attention_backward` in place of `attention_keys_backward_kernel`: a warp a key and a kv head.
template <class T, int QkDim, int VDim> struct attention_plain_keys_backward_kernel {
    using A = accumulator_t<T>;
    static constexpr const char* name = "attention_plain_keys_backward";
    static constexpr int threads = 128;

    detail::attention::kernel_facts of;

    [[nodiscard]] constexpr bool takes() const { return detail::attention::takes_plain(of.facts, QkDim, VDim); }
    [[nodiscard]] constexpr integer blocks(integer sequences) const {
        return pieces(sequences * of.length * of.facts.kv_heads, threads / 32);
    }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, T> dk, device::rows<Block, A> shared_parts,
                                  device::rows<Block, T> dv, device::rows<Block, const T> q,
                                  device::rows<Block, const T> k, device::rows<Block, const T> shared,
                                  device::rows<Block, const T> v, device::rows<Block, const T> dout,
                                  device::rows<Block, const A> logsumexp, device::rows<Block, const A> means,
                                  device::rows<Block, const std::int32_t> starts) const {
        namespace in = detail::attention;
        const auto warp = block.warp();
        const int lane = warp.thread_rank();
        const integer i = static_cast<integer>(block.block_rank()) * warp.meta_group_size() + warp.meta_group_rank();
        const integer token = i / of.facts.kv_heads, kv_head = i % of.facts.kv_heads;
        if (token >= k.rows) return;
        const integer place = token % of.length, origin = token - place, group = of.facts.heads / of.facts.kv_heads;
        const auto operands = of.operands(kv_head * group, origin, k, shared, v);
        const auto scale = static_cast<A>(of.facts.scale);
        A query[QkDim / 32], key[QkDim / 32], up[VDim / 32], value[VDim / 32];
        A key_slope[QkDim / 32] = {}, value_slope[VDim / 32] = {};
        in::take_row<QkDim>(lane, key, [&](int c) { return operands.key(place, c); });
        in::take_row<VDim>(lane, value, [&](int c) { return operands.value(place, c); });
        for (integer head = kv_head * group; head < (kv_head + 1) * group; ++head)
            for (integer j = origin + place; j < origin + of.length; ++j) {
                if (static_cast<std::int32_t>(starts(0, j)) > place) continue;
                in::take_row<QkDim>(lane, query, [&](int c) { return q.row(j) + (head * QkDim + c); });
                in::take_row<VDim>(lane, up, [&](int c) { return dout.row(j) + (head * VDim + c); });
                const A weight = std::exp(in::dot(warp, query, key) * scale - static_cast<A>(logsumexp(head, j)));
                const A change = weight * (in::dot(warp, up, value) - static_cast<A>(means(head, j)));
                for (int c = 0; c < VDim / 32; ++c) value_slope[c] += weight * up[c];
                for (int c = 0; c < QkDim / 32; ++c) key_slope[c] += change * query[c];
            }
        for (int c = 0; c < VDim / 32; ++c)
            dv(token, kv_head * of.v_head_stride + 32 * c + lane) = static_cast<T>(value_slope[c]);
        for (int c = 0; c < QkDim / 32; ++c) {
            const integer column = 32 * c + lane;
            if (column < operands.own)
                dk(token, kv_head * of.k_head_stride + column) = static_cast<T>(key_slope[c] * scale);
            else
                shared_parts(token, kv_head * of.facts.shared_dim + column - operands.own) = key_slope[c] * scale;
        }
    }
};

}  // namespace fathom::ops
