// The launches before and after attention's backward on GPUs, which its number formats share.
#pragma once

#include <fathom/core/bytes.hpp>
#include <fathom/core/number.hpp>
#include <fathom/device/block/reduce.hpp>
#include <fathom/ops/attention/detail/held_runs.hpp>

namespace fathom::ops {

/// First of the launches that are `attention_backward`: means[heads, tokens] = dout . out of each query and head, a
/// warp each. out, dout[tokens, heads * v_dim].
template <class T> struct attention_means_kernel {
    using A = accumulator_t<T>;
    static constexpr const char* name = "attention_means";
    static constexpr int threads = 128;
    static constexpr integer blocks(integer tokens, integer heads) { return pieces(tokens * heads, threads / 32); }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, A> means, device::rows<Block, const T> out,
                                  device::rows<Block, const T> dout) const {
        const auto warp = block.warp();
        const integer i = static_cast<integer>(block.block_rank()) * warp.meta_group_size() + warp.meta_group_rank();
        const integer heads = means.rows, token = i / heads, head = i % heads, width = out.width / heads;
        if (token >= out.rows) return;
        A sum{};
        for (integer c = head * width + warp.thread_rank(); c < (head + 1) * width; c += 32)
            sum += static_cast<A>(out(token, c)) * static_cast<A>(dout(token, c));
        sum = device::reduce(warp, sum, device::plus{});
        if (warp.thread_rank() == 0) means(head, token) = sum;
    }
};

/// Last launch, where heads share a part of their keys: dshared[tokens, shared_dim] (+)= the parts of all kv heads,
/// added in order, in the rows of `keys`. G is T or its accumulator; shared_parts[tokens, kv_heads * shared_dim]; a
/// block a token.
template <class G> struct attention_shared_kernel {
    using A = accumulator_t<G>;
    static constexpr const char* name = "attention_shared";
    static constexpr int threads = 64;

    detail::attention::held_runs keys;

    [[nodiscard]] constexpr integer blocks(integer sequences) const { return sequences * keys.places; }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, G> dshared,
                                  device::rows<Block, const A> shared_parts, bool accumulate) const {
        const integer row = keys.at(block.block_rank() / keys.places, block.block_rank() % keys.places).row;
        for (integer c = block.thread_rank(); c < dshared.width; c += block.size()) {
            A sum{};
            for (integer at = c; at < shared_parts.width; at += dshared.width)
                sum += static_cast<A>(shared_parts(row, at));
            dshared(row, c) = static_cast<G>(accumulate ? static_cast<A>(static_cast<G>(dshared(row, c))) + sum : sum);
        }
    }
};

}  // namespace fathom::ops
