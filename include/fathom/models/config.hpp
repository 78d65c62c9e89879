// The numbers of a described model, named as in a Hugging Face config.json, so that both can be compared field by
// field.
#pragma once

#include <fathom/nn/experts.hpp>
#include <fathom/nn/feed_forward.hpp>
#include <fathom/nn/grouped_query_attention.hpp>
#include <fathom/nn/latent_attention.hpp>
#include <fathom/ops/rotary.hpp>

namespace fathom::models {

/// The architectures that checkpoints name in `model_type`; `composed` models have none.
enum class family : unsigned char { llama, deepseek_moe, deepseek_v2, deepseek_v3, composed };

/// Modules of multi-token prediction that a model may have: V3 has one.
inline constexpr integer max_prediction_depths = 8;

/// Every number that a description in types fixes.
struct model_config {
    family type = family::deepseek_v3;
    integer vocab_size = 0;
    integer hidden_size = 0;
    integer num_hidden_layers = 0;
    integer first_k_dense_replace = 0;
    integer num_attention_heads = 0;
    integer num_key_value_heads = 0;  // 0: as many as attention heads
    integer head_dim = 0;             // 0: hidden_size / num_attention_heads
    integer q_lora_rank = 0;
    integer kv_lora_rank = 0;
    integer qk_nope_head_dim = 0;
    integer qk_rope_head_dim = 0;
    integer v_head_dim = 0;
    integer intermediate_size = 0;
    integer moe_intermediate_size = 0;
    integer n_routed_experts = 0;
    integer num_experts_per_tok = 0;
    integer n_shared_experts = 0;
    integer n_group = 1;
    integer topk_group = 1;
    integer num_nextn_predict_layers = 0;
    integer max_position_embeddings = 4096;
    double routed_scaling_factor = 1;
    double rms_norm_eps = 1e-6;
    double initializer_range = 0.006;
    bool norm_topk_prob = false;
    bool tie_word_embeddings = false;
    bool attention_bias = false;
    bool rope_interleave = true;
    ops::rope_facts rope{};

    [[nodiscard]] constexpr bool latent() const { return type == family::deepseek_v2 || type == family::deepseek_v3; }
    [[nodiscard]] constexpr integer key_value_heads() const {
        return num_key_value_heads > 0 ? num_key_value_heads : num_attention_heads;
    }
    [[nodiscard]] constexpr integer width_of_head() const {
        return head_dim > 0 ? head_dim : (num_attention_heads > 0 ? hidden_size / num_attention_heads : 0);
    }
    /// Rotary facts with the width of the rotated part filled in.
    [[nodiscard]] constexpr ops::rope_facts rotary() const {
        ops::rope_facts facts = rope;
        facts.dim = latent() ? qk_rope_head_dim : width_of_head();
        facts.interleaved = latent() && rope_interleave;
        return facts;
    }
};

/// The facts of each kind of layer, taken from a config.
constexpr nn::feed_forward_facts dense_facts(const model_config& c) { return {c.hidden_size, c.intermediate_size}; }

constexpr nn::latent_attention_facts latent_attention_facts(const model_config& c) {
    return {.hidden_size = c.hidden_size,
            .num_attention_heads = c.num_attention_heads,
            .q_lora_rank = c.q_lora_rank,
            .kv_lora_rank = c.kv_lora_rank,
            .qk_nope_head_dim = c.qk_nope_head_dim,
            .qk_rope_head_dim = c.qk_rope_head_dim,
            .v_head_dim = c.v_head_dim,
            .attention_bias = c.attention_bias,
            .rope_interleave = c.rope_interleave,
            .rope = c.rotary()};
}

constexpr nn::grouped_query_attention_facts grouped_query_attention_facts(const model_config& c) {
    return {.hidden_size = c.hidden_size,
            .num_attention_heads = c.num_attention_heads,
            .num_key_value_heads = c.key_value_heads(),
            .head_dim = c.width_of_head(),
            .attention_bias = c.attention_bias,
            .rope = c.rotary()};
}

/// V3 scores with a sigmoid, chooses with a bias and groups by their best two; V2 and DeepSeekMoE take a softmax, V2's
/// groups by their maximum (V2 never renormalises, whatever norm_topk_prob says).
constexpr nn::experts_facts experts_facts(const model_config& c) {
    const bool v3 = c.type == family::deepseek_v3;
    return {
        .hidden_size = c.hidden_size,
        .moe_intermediate_size = c.moe_intermediate_size,
        .n_routed_experts = c.n_routed_experts,
        .n_shared_experts = c.n_shared_experts,
        .router = {.experts = c.n_routed_experts,
                   .top_k = c.num_experts_per_tok,
                   .groups = c.n_group,
                   .topk_group = c.topk_group,
                   .score = v3 ? ops::router_facts::score_kind::sigmoid : ops::router_facts::score_kind::softmax,
                   .group_score = v3 ? ops::router_facts::group_kind::best_two : ops::router_facts::group_kind::maximum,
                   .normalise = c.norm_topk_prob && c.type != family::deepseek_v2,
                   .scaling_factor = c.routed_scaling_factor,
                   .bias = v3}};
}

}  // namespace fathom::models
