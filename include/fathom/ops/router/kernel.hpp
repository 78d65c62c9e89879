// Routing for GPUs: a warp a token; choice by repeated maxima, which a warp finds in five exchanges.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <fathom/core/bytes.hpp>
#include <fathom/device/block/reduce.hpp>
#include <fathom/ops/router/facts.hpp>
#include <limits>

namespace fathom::ops {

namespace detail {

/// A number and where it stands.
template <class A> struct ranked {
    A value;
    int place;
};

/// The best of what the threads of a warp hold, for all of them: the largest, on a tie the one that stands first.
template <class Warp, class A> FATHOM_DEVICE ranked<A> best_of(const Warp& warp, ranked<A> mine) {
    for (int step = 16; step > 0; step /= 2) {
        const ranked<A> other{warp.shfl_xor(mine.value, step), warp.shfl_xor(mine.place, step)};
        if (other.value > mine.value || (other.value == mine.value && other.place < mine.place)) mine = other;
    }
    return mine;
}

}  // namespace detail

/// `route` for at most 1024 experts in at most 32 groups. scores[tokens, experts], ids[tokens, top_k],
/// weights[tokens, top_k], logits[tokens, experts], bias[1, experts] or empty.
template <class A> struct route_kernel {
    static constexpr const char* name = "route";
    static constexpr int threads = 128, tokens_a_block = threads / 32;
    static constexpr integer blocks(integer tokens) { return pieces(tokens, tokens_a_block); }
    /// Whether the kernel can do what `facts` say; a launch asks first.
    static constexpr bool takes(const router_facts& facts) {
        return facts.consistent() && facts.experts <= 1024 && facts.groups <= 32;
    }

    router_facts facts;
    constexpr integer shared_bytes() const { return tokens_a_block * facts.experts * sizeof(A); }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, A> scores, device::rows<Block, std::int32_t> ids,
                                  device::rows<Block, A> weights, device::rows<Block, const A> logits,
                                  device::rows<Block, const A> bias) const {
        const auto warp = block.warp();
        const int lane = warp.thread_rank(), experts = static_cast<int>(facts.experts);
        const auto choices = block.template shared<A>(tokens_a_block * experts) + warp.meta_group_rank() * experts;
        const integer t = static_cast<integer>(block.block_rank()) * tokens_a_block + warp.meta_group_rank();
        if (t >= logits.rows) return;  // whole warps: nobody waits for them
        score(warp, scores.row(t), logits.row(t));
        for (int e = lane; e < experts; e += 32) {
            const A value = static_cast<A>(scores(t, e)) + (bias.empty() ? A{} : static_cast<A>(bias(0, e)));
            choices[e] = value == value ? value : -std::numeric_limits<A>::infinity();  // a NaN is never a best
        }
        warp.sync();
        const std::uint32_t groups = best_groups<Block>(warp, choices);
        // Bit j of `free` and `taken`: expert 32 j + lane.
        const int size = experts / static_cast<int>(facts.groups);
        std::uint32_t free = 0, taken = 0;
        for (int e = lane; e < experts; e += 32) free |= (groups >> (e / size) & 1u) << (e / 32);
        for (int k = 0; k < facts.top_k; ++k) {
            detail::ranked<A> mine{-std::numeric_limits<A>::infinity(), experts};
            for (std::uint32_t left = free; left != 0; left &= left - 1) {
                const int e = 32 * std::countr_zero(left) + lane;
                const A value = static_cast<A>(choices[e]);
                if (value > mine.value || mine.place == experts) mine = {value, e};
            }
            const int chosen = detail::best_of(warp, mine).place;
            if (chosen % 32 != lane) continue;
            free &= ~(1u << (chosen / 32));
            taken |= 1u << (chosen / 32);
        }
        weigh(warp, taken, scores.row(t), ids.row(t), weights.row(t));
    }

  private:
    template <class Warp, class Out, class In> FATHOM_DEVICE void score(const Warp& warp, Out scores, In logits) const {
        const int lane = warp.thread_rank();
        if (facts.score == router_facts::score_kind::sigmoid) {
            for (integer e = lane; e < facts.experts; e += 32)
                scores[e] = A{1} / (A{1} + std::exp(-static_cast<A>(logits[e])));
            return;
        }
        A largest = -std::numeric_limits<A>::infinity(), sum{};
        for (integer e = lane; e < facts.experts; e += 32)
            largest = static_cast<A>(logits[e]) > largest ? static_cast<A>(logits[e]) : largest;
        largest = device::reduce(warp, largest, device::maximum{});
        for (integer e = lane; e < facts.experts; e += 32) sum += std::exp(static_cast<A>(logits[e]) - largest);
        sum = device::reduce(warp, sum, device::plus{});
        for (integer e = lane; e < facts.experts; e += 32)
            scores[e] = std::exp(static_cast<A>(logits[e]) - largest) / sum;
    }

    /// Bit g: whether group g is one of the topk_group best. A lane ranks a group.
    template <class Block, class Warp>
    FATHOM_DEVICE std::uint32_t best_groups(const Warp& warp, device::shared<Block, A> choices) const {
        const int groups = static_cast<int>(facts.groups), size = static_cast<int>(facts.experts) / groups;
        if (facts.topk_group == facts.groups) return ~0u;
        const int lane = warp.thread_rank();
        detail::ranked<A> mine{-std::numeric_limits<A>::infinity(), 32 + lane};
        if (lane < groups) {
            A first = -std::numeric_limits<A>::infinity(), second = first;
            for (int e = lane * size; e < (lane + 1) * size; ++e) {
                const A here = static_cast<A>(choices[e]);
                second = here > first ? first : here > second ? here : second;
                first = here > first ? here : first;
            }
            mine = {facts.group_score == router_facts::group_kind::best_two ? first + second : first, lane};
        }
        std::uint32_t kept = 0;
        for (int g = 0; g < facts.topk_group; ++g) {
            const int chosen = detail::best_of(warp, mine).place;
            kept |= 1u << chosen;
            if (chosen == lane) mine = {-std::numeric_limits<A>::infinity(), 32 + lane};
        }
        return kept;
    }

    /// The experts that lanes hold in `taken`, in ascending order, and their weights.
    template <class Warp, class In, class Ids, class Out>
    FATHOM_DEVICE void weigh(const Warp& warp, std::uint32_t taken, In scores, Ids ids, Out weights) const {
        const int lane = warp.thread_rank();
        A sum{};
        for (std::uint32_t left = taken; left != 0; left &= left - 1)
            sum += static_cast<A>(scores[32 * std::countr_zero(left) + lane]);
        sum = device::reduce(warp, sum, device::plus{});
        const A scale = static_cast<A>(facts.scaling_factor) / (facts.normalise ? sum + A(1e-20) : A{1});
        int before = 0;
        for (int j = 0; 32 * j < facts.experts; ++j) {
            const std::uint32_t here = warp.ballot(taken >> j & 1u);
            if (here >> lane & 1u) {
                const int at = before + std::popcount(here & ((1u << lane) - 1));
                ids[at] = 32 * j + lane;
                weights[at] = static_cast<A>(scores[32 * j + lane]) * scale;
            }
            before += std::popcount(here);
        }
    }
};

/// `route_backward`: dlogits[tokens, experts], which may be dscores[tokens, experts] (or that is empty), from
/// dweights[tokens, top_k], scores[tokens, experts], ids[tokens, top_k], weights[tokens, top_k].
template <class A> struct route_backward_kernel {
    static constexpr const char* name = "route_backward";
    static constexpr int threads = 128, tokens_a_block = threads / 32;
    static constexpr integer blocks(integer tokens) { return pieces(tokens, tokens_a_block); }

    router_facts facts;

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, A> dlogits, device::rows<Block, const A> dweights,
                                  device::rows<Block, const A> scores, device::rows<Block, const std::int32_t> ids,
                                  device::rows<Block, const A> weights, device::rows<Block, const A> dscores) const {
        const auto warp = block.warp();
        const integer t = static_cast<integer>(block.block_rank()) * tokens_a_block + warp.meta_group_rank();
        if (t >= dlogits.rows) return;
        A sum{}, along{};
        for (integer j = 0; j < facts.top_k; ++j) {
            sum += static_cast<A>(scores(t, static_cast<std::int32_t>(ids(t, j))));
            along += static_cast<A>(dweights(t, j)) * static_cast<A>(weights(t, j));
        }
        const A scale = static_cast<A>(facts.scaling_factor);
        const auto slope = [&](integer e) {
            A d = dscores.empty() ? A{} : static_cast<A>(dscores(t, e));
            for (integer j = 0; j < facts.top_k; ++j)
                if (static_cast<std::int32_t>(ids(t, j)) == e) {
                    const A own = scale * static_cast<A>(dweights(t, j));
                    d += facts.normalise ? (own - along) / (sum + A(1e-20)) : own;
                }
            return d;
        };
        A mean{};
        if (facts.score == router_facts::score_kind::softmax) {
            for (integer e = warp.thread_rank(); e < facts.experts; e += 32)
                mean += slope(e) * static_cast<A>(scores(t, e));
            mean = device::reduce(warp, mean, device::plus{});
        }
        for (integer e = warp.thread_rank(); e < facts.experts; e += 32) {
            const A s = static_cast<A>(scores(t, e));
            dlogits(t, e) =
                facts.score == router_facts::score_kind::sigmoid ? slope(e) * s * (A{1} - s) : s * (slope(e) - mean);
        }
    }
};

/// `add_load` and, once a step, `bias_update`: a thread an expert. load[1, experts], offsets[1, experts + 1].
struct add_load_kernel {
    static constexpr const char* name = "add_load";
    static constexpr int threads = 256;
    static constexpr integer blocks(integer experts) { return pieces(experts, threads); }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, integer> load,
                                  device::rows<Block, const integer> offsets) const {
        const integer e = static_cast<integer>(block.block_rank()) * threads + block.thread_rank();
        if (e < load.width) load(0, e) += static_cast<integer>(offsets(0, e + 1)) - static_cast<integer>(offsets(0, e));
    }
};

/// bias[1, experts] from load[1, experts]; one block.
template <class A> struct bias_update_kernel {
    static constexpr const char* name = "bias_update";
    static constexpr int threads = 256;
    static constexpr integer shared_bytes() { return 32 * sizeof(integer); }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, A> bias, device::rows<Block, const integer> load,
                                  double gamma) const {
        const auto scratch = block.template shared<integer>(32);
        integer total = 0;
        for (integer e = block.thread_rank(); e < load.width; e += block.size())
            total += static_cast<integer>(load(0, e));
        total = device::reduce(block, scratch, total, device::plus{});
        for (integer e = block.thread_rank(); e < load.width; e += block.size()) {
            const integer here = static_cast<integer>(load(0, e)) * load.width;
            bias(0, e) += static_cast<A>(gamma * (here < total ? 1.0 : here > total ? -1.0 : 0.0));
        }
    }
};

}  // namespace fathom::ops
