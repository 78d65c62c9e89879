// Blocks of every kind in small, and what one needs to run.
#pragma once

#include <fathom/nn/block.hpp>
#include <fathom/nn/experts.hpp>
#include <fathom/nn/grouped_query_attention.hpp>
#include <fathom/nn/latent_attention.hpp>

#include "layers.hpp"

namespace fathom::test {

inline constexpr ops::rope_facts small_rope{.theta = 100, .dim = 4};

/// V3's routing: eight experts in four groups of which two are kept, three chosen, a bias.
inline constexpr nn::experts_facts small_experts{.hidden_size = 16,
                                                 .moe_intermediate_size = 6,
                                                 .n_routed_experts = 8,
                                                 .n_shared_experts = 1,
                                                 .router = {.experts = 8,
                                                            .top_k = 3,
                                                            .groups = 4,
                                                            .topk_group = 2,
                                                            .score = ops::router_facts::score_kind::sigmoid,
                                                            .group_score = ops::router_facts::group_kind::best_two,
                                                            .normalise = true,
                                                            .scaling_factor = 2.5,
                                                            .bias = true}};

/// Facts of a small block; `q_lora_rank` 0 is latent attention without a latent for queries.
template <class Block> Block small_block(const nn::recomputation& again, integer q_lora_rank = 12, bool bias = true) {
    Block layer{};
    layer.of.hidden_size = 16;
    layer.again = again;
    auto& attention = layer.of.self_attn;
    attention.hidden_size = 16;
    attention.attention_bias = bias;
    attention.rope = small_rope;
    if constexpr (requires { attention.kv_lora_rank; }) {
        attention.num_attention_heads = 2;
        attention.q_lora_rank = q_lora_rank;
        attention.kv_lora_rank = 8;
        attention.qk_nope_head_dim = 6;
        attention.qk_rope_head_dim = 4;
        attention.v_head_dim = 5;
    } else {
        attention.num_attention_heads = 4;
        attention.num_key_value_heads = 2;
        attention.head_dim = 4;
    }
    if constexpr (Block::buffered)
        layer.of.mlp = small_experts;
    else
        layer.of.mlp = {16, 20};
    return layer;
}

/// Two workers with the scratch that a layer asks for.
class two_workers {
  public:
    explicit two_workers(integer scratch_bytes)
        : pool_(2),
          scratch_(2 * round_up(scratch_bytes, arena::alignment) + arena::alignment),
          queue(pool_, scratch_.arena().template take<std::byte>(0), round_up(scratch_bytes, arena::alignment)) {}

  private:
    host::workers pool_;
    block_of_memory scratch_;

  public:
    host::queue queue;
};

/// A block's parameters, the room for their gradients, and the numbers of its router.
template <class Block> struct block_state {
    using T = typename Block::stream::element;
    using A = typename Block::A;

    typename Block::template parameters<T> parameters{};
    typename Block::template parameters<A> gradients{};
    parameter_numbers<T> numbers;
    parameter_numbers<A> slopes;
    typename Block::buffers buffers{};
    std::vector<A> bias;
    std::vector<integer> load;

    block_state(const Block& layer, std::uint64_t seed) {
        numbers.bind(layer, parameters, 0.3, seed);
        slopes.bind(layer, gradients, 0, 0);
        if constexpr (Block::buffered) {
            bias.assign(static_cast<std::size_t>(layer.of.mlp.n_routed_experts), A{});
            for (std::size_t e = 0; e < bias.size(); ++e) bias[e] = static_cast<A>(0.05 * (static_cast<double>(e) - 3));
            load.assign(bias.size(), 0);
            buffers.bias = vector_view(bias.data(), layer.of.mlp.n_routed_experts);
            buffers.load = vector_view(load.data(), layer.of.mlp.n_routed_experts);
        }
    }
    block_state(const block_state&) = delete;
    block_state& operator=(const block_state&) = delete;
};

using latent_dense = nn::block<double, nn::latent_attention, nn::feed_forward>;
using latent_experts = nn::block<double, nn::latent_attention, nn::experts>;
using grouped_query_dense = nn::block<double, nn::grouped_query_attention, nn::feed_forward>;
using grouped_query_experts = nn::block<double, nn::grouped_query_attention, nn::experts>;

}  // namespace fathom::test
