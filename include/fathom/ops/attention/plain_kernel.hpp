// Attention for GPUs without tensor cores, for heads of any width, parts of sequences and any number format: for float
// and double, which train to be compared with other machines and not to be fast.
#pragma once

#include <cmath>
#include <cstdint>
#include <fathom/core/number.hpp>
#include <fathom/device/block/reduce.hpp>
#include <fathom/ops/attention/detail/held_runs.hpp>
#include <fathom/ops/attention/detail/kernel_facts.hpp>
#include <limits>

namespace fathom::ops {

namespace detail::attention {

/// Sizes of one call, and where heads lie in its operands and in their gradients.
struct plain_facts {
    attention_facts facts;
    integer sequences = 0;
    held_runs queries, keys;
    integer k_head_stride = 0, v_head_stride = 0;
    integer dk_head_stride = 0, dv_head_stride = 0;

    [[nodiscard]] FATHOM_DEVICE integer group() const { return facts.heads / facts.kv_heads; }
    /// Numbers of a key that its head does not share.
    [[nodiscard]] FATHOM_DEVICE integer own() const { return facts.qk_dim - facts.shared_dim; }
};

/// Warps of a block.
inline constexpr int plain_warps = 4;

/// Calls visit(c) for the columns of a row that are a lane's: so every lane works on the same ones from first to last,
/// also in shared memory, which then needs no barrier. Those from `own` on are shared out anew.
template <class Visit> FATHOM_DEVICE void each_column(int lane, integer own, integer width, const Visit& visit) {
    for (integer c = lane; c < own; c += 32) visit(c);
    for (integer c = own + lane; c < width; c += 32) visit(c);
}

/// A key or a value: numbers of its head, then, of a key, those that all heads share.
template <class T, class Place> struct head_row {
    Place numbers, shared;
    integer own, width;

    /// Calls visit(c, number) for the columns of a lane.
    template <class Visit> FATHOM_DEVICE void each(int lane, const Visit& visit) const {
        for (integer c = lane; c < own; c += 32) visit(c, static_cast<accumulator_t<T>>(static_cast<T>(numbers[c])));
        for (integer c = own + lane; c < width; c += 32)
            visit(c, static_cast<accumulator_t<T>>(static_cast<T>(shared[c - own])));
    }
};
template <class T, class Rows>
FATHOM_DEVICE auto key_of(const plain_facts& of, const Rows& k, const Rows& shared, integer row, integer kv_head) {
    using place = decltype(k.row(row));
    return head_row<T, place>{k.row(row) + kv_head * of.k_head_stride,
                              of.facts.shared_dim > 0 ? shared.row(row) : place{}, of.own(), of.facts.qk_dim};
}
template <class T, class Rows>
FATHOM_DEVICE auto value_of(const plain_facts& of, const Rows& v, integer row, integer kv_head) {
    using place = decltype(v.row(row));
    return head_row<T, place>{v.row(row) + kv_head * of.v_head_stride, place{}, of.facts.v_dim, of.facts.v_dim};
}

/// The sum of the products of two rows.
template <class T, class Warp, class Place>
FATHOM_DEVICE accumulator_t<T> dot(const Warp& warp, const head_row<T, Place>& row, const Place& with) {
    accumulator_t<T> sum{};
    row.each(warp.thread_rank(), [&](integer c, accumulator_t<T> number) {
        sum += number * static_cast<accumulator_t<T>>(static_cast<T>(with[c]));
    });
    return device::reduce(warp, sum, device::plus{});
}

/// to (+)= value, in the format of what is kept.
template <class G, class A, class Rows>
FATHOM_DEVICE void put(const Rows& to, integer row, integer column, A value, bool accumulate) {
    to(row, column) = static_cast<G>(accumulate ? static_cast<A>(static_cast<G>(to(row, column))) + value : value);
}

}  // namespace detail::attention

/// `attention_forward`, a warp a query and a head. out[query tokens, heads * v_dim], logsumexp[heads, query tokens],
/// q[query tokens, heads * qk_dim]; k, shared and v as `attention_operands` has them; starts[1, query tokens]. Ends the
/// launch at a start outside [0, place].
template <class T, class Out = T> struct attention_plain_forward_kernel {
    using A = accumulator_t<T>;
    static constexpr const char* name = "attention_plain_forward";
    static constexpr int threads = 32 * detail::attention::plain_warps;

    detail::attention::plain_facts of;

    [[nodiscard]] constexpr integer blocks() const {
        return pieces(of.sequences * of.queries.places * of.facts.heads, threads / 32);
    }
    [[nodiscard]] constexpr integer shared_bytes() const { return threads / 32 * of.facts.v_dim * sizeof(A); }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, Out> out, device::rows<Block, A> logsumexp,
                                  device::rows<Block, const T> q, device::rows<Block, const T> k,
                                  device::rows<Block, const T> shared, device::rows<Block, const T> v,
                                  device::rows<Block, const std::int32_t> starts, bool continues) const {
        namespace in = detail::attention;
        const auto warp = block.warp();
        const int lane = warp.thread_rank();
        const integer width = of.facts.v_dim;
        const auto mixed = block.template shared<A>(threads / 32 * width) + warp.meta_group_rank() * width;
        const integer i = static_cast<integer>(block.block_rank()) * warp.meta_group_size() + warp.meta_group_rank();
        const integer head = i % of.facts.heads, kv_head = head / of.group();
        const integer sequence = i / of.facts.heads / of.queries.places;
        if (sequence >= of.sequences) return;
        const auto [place, row] = of.queries.at(sequence, i / of.facts.heads % of.queries.places);
        const integer start = static_cast<std::int32_t>(starts(0, row));
        if (start < 0 || start > place) block.trap("a document that starts after its token");
        const auto query = q.row(row) + head * of.facts.qk_dim;
        const auto result = out.row(row) + head * width;
        const auto scale = static_cast<A>(of.facts.scale);
        // What came before is as one key: of the score `logsumexp`, of the value `out`.
        A most = continues ? static_cast<A>(logsumexp(head, row)) : -std::numeric_limits<A>::infinity();
        A sum = continues ? A{1} : A{};
        for (integer c = lane; c < width; c += 32)
            mixed[c] = continues ? static_cast<A>(static_cast<Out>(result[c])) : A{};
        of.keys.each(sequence, start, place, [&](integer at) {
            const A score = in::dot(warp, in::key_of<T>(of, k, shared, at, kv_head), query) * scale;
            const A highest = most < score ? score : most;
            const A fade = std::exp(most - highest), weight = std::exp(score - highest);
            most = highest;
            sum = sum * fade + weight;
            in::value_of<T>(of, v, at, kv_head).each(lane, [&](integer c, A value) {
                mixed[c] = static_cast<A>(mixed[c]) * fade + weight * value;
            });
        });
        for (integer c = lane; c < width; c += 32)
            result[c] = static_cast<Out>(sum == A{} ? A{} : static_cast<A>(mixed[c]) / sum);
        warp.sync();  // all have read logsumexp
        if (lane == 0) logsumexp(head, row) = most + std::log(sum);
    }
};

/// The third launch of `attention_backward`, after `attention_means_kernel`, in place of
/// `attention_queries_backward_kernel`: a warp a query and a head. dq[query tokens, heads * qk_dim], dout as the
/// forward's out, logsumexp and means[heads, query tokens].
template <class T, class G = T> struct attention_plain_queries_backward_kernel {
    using A = accumulator_t<T>;
    static constexpr const char* name = "attention_plain_queries_backward";
    static constexpr int threads = 32 * detail::attention::plain_warps;

    detail::attention::plain_facts of;

    [[nodiscard]] constexpr integer blocks() const {
        return pieces(of.sequences * of.queries.places * of.facts.heads, threads / 32);
    }
    [[nodiscard]] constexpr integer shared_bytes() const { return threads / 32 * of.facts.qk_dim * sizeof(A); }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, G> dq, device::rows<Block, const T> q,
                                  device::rows<Block, const T> k, device::rows<Block, const T> shared,
                                  device::rows<Block, const T> v, device::rows<Block, const T> dout,
                                  device::rows<Block, const A> logsumexp, device::rows<Block, const A> means,
                                  device::rows<Block, const std::int32_t> starts, bool accumulate) const {
        namespace in = detail::attention;
        const auto warp = block.warp();
        const int lane = warp.thread_rank();
        const integer width = of.facts.qk_dim;
        const auto slopes = block.template shared<A>(threads / 32 * width) + warp.meta_group_rank() * width;
        const integer i = static_cast<integer>(block.block_rank()) * warp.meta_group_size() + warp.meta_group_rank();
        const integer head = i % of.facts.heads, kv_head = head / of.group();
        const integer sequence = i / of.facts.heads / of.queries.places;
        if (sequence >= of.sequences) return;
        const auto [place, row] = of.queries.at(sequence, i / of.facts.heads % of.queries.places);
        const auto query = q.row(row) + head * width, up = dout.row(row) + head * of.facts.v_dim;
        const auto scale = static_cast<A>(of.facts.scale);
        const A above = static_cast<A>(logsumexp(head, row)), mean = static_cast<A>(means(head, row));
        in::each_column(lane, of.own(), width, [&](integer c) { slopes[c] = A{}; });
        of.keys.each(sequence, static_cast<std::int32_t>(starts(0, row)), place, [&](integer at) {
            const auto key = in::key_of<T>(of, k, shared, at, kv_head);
            const A weight = std::exp(in::dot(warp, key, query) * scale - above);
            const A change = weight * (in::dot(warp, in::value_of<T>(of, v, at, kv_head), up) - mean);
            key.each(lane, [&](integer c, A number) { slopes[c] = static_cast<A>(slopes[c]) + change * number; });
        });
        in::each_column(lane, of.own(), width, [&, row = row](integer c) {
            in::put<G>(dq, row, head * width + c, static_cast<A>(slopes[c]) * scale, accumulate);
        });
    }
};

/// The second launch of `attention_backward` in place of `attention_keys_backward_kernel`: a warp a key and a kv head.
/// dk and dv as `attention_operands` has k and v, shared_parts[key tokens, kv_heads * shared_dim], which is always
/// written over.
template <class T, class G = T> struct attention_plain_keys_backward_kernel {
    using A = accumulator_t<T>;
    static constexpr const char* name = "attention_plain_keys_backward";
    static constexpr int threads = 32 * detail::attention::plain_warps;

    detail::attention::plain_facts of;

    [[nodiscard]] constexpr integer blocks() const {
        return pieces(of.sequences * of.keys.places * of.facts.kv_heads, threads / 32);
    }
    [[nodiscard]] constexpr integer shared_bytes() const {
        return threads / 32 * (of.facts.qk_dim + of.facts.v_dim) * sizeof(A);
    }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, G> dk, device::rows<Block, A> shared_parts,
                                  device::rows<Block, G> dv, device::rows<Block, const T> q,
                                  device::rows<Block, const T> k, device::rows<Block, const T> shared,
                                  device::rows<Block, const T> v, device::rows<Block, const T> dout,
                                  device::rows<Block, const A> logsumexp, device::rows<Block, const A> means,
                                  device::rows<Block, const std::int32_t> starts, bool accumulate) const {
        namespace in = detail::attention;
        const auto warp = block.warp();
        const int lane = warp.thread_rank();
        const integer qk = of.facts.qk_dim, v_dim = of.facts.v_dim;
        const auto slopes =
            block.template shared<A>(threads / 32 * (qk + v_dim)) + warp.meta_group_rank() * (qk + v_dim);
        const auto value_slopes = slopes + qk;
        const integer i = static_cast<integer>(block.block_rank()) * warp.meta_group_size() + warp.meta_group_rank();
        const integer kv_head = i % of.facts.kv_heads, sequence = i / of.facts.kv_heads / of.keys.places;
        if (sequence >= of.sequences) return;
        const auto [place, row] = of.keys.at(sequence, i / of.facts.kv_heads % of.keys.places);
        const auto key = in::key_of<T>(of, k, shared, row, kv_head);
        const auto value = in::value_of<T>(of, v, row, kv_head);
        const auto scale = static_cast<A>(of.facts.scale);
        in::each_column(lane, of.own(), qk, [&](integer c) { slopes[c] = A{}; });
        for (integer c = lane; c < v_dim; c += 32) value_slopes[c] = A{};
        for (integer head = kv_head * of.group(); head < (kv_head + 1) * of.group(); ++head)
            of.queries.each(sequence, place, std::numeric_limits<integer>::max() - 1, [&, at = place](integer from) {
                if (static_cast<std::int32_t>(starts(0, from)) > at) return;
                const auto query = q.row(from) + head * qk, up = dout.row(from) + head * v_dim;
                const A weight = std::exp(in::dot(warp, key, query) * scale - static_cast<A>(logsumexp(head, from)));
                const A change = weight * (in::dot(warp, value, up) - static_cast<A>(means(head, from)));
                in::each_column(lane, of.own(), qk, [&](integer c) {
                    slopes[c] = static_cast<A>(slopes[c]) + change * static_cast<A>(static_cast<T>(query[c]));
                });
                for (integer c = lane; c < v_dim; c += 32)
                    value_slopes[c] = static_cast<A>(value_slopes[c]) + weight * static_cast<A>(static_cast<T>(up[c]));
            });
        in::each_column(lane, of.own(), qk, [&, row = row](integer c) {
            const A sum = static_cast<A>(slopes[c]) * scale;
            if (c < of.own())
                in::put<G>(dk, row, kv_head * of.dk_head_stride + c, sum, accumulate);
            else
                shared_parts(row, kv_head * of.facts.shared_dim + c - of.own()) = sum;
        });
        for (integer c = lane; c < v_dim; c += 32)
            in::put<G>(dv, row, kv_head * of.dv_head_stride + c, static_cast<A>(value_slopes[c]), accumulate);
    }
};

}  // namespace fathom::ops
