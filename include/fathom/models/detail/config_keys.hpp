// The keys that a config.json and a described model share, in one table: reading, writing, comparing and describing
// all go through it.
#pragma once

#include <fathom/core/error.hpp>
#include <fathom/models/config.hpp>

namespace fathom::models::detail {

/// Families as bits, so that a key can say which of them know it.
constexpr unsigned bit(family f) { return 1U << static_cast<unsigned>(f); }
inline constexpr unsigned llama = bit(family::llama), moe = bit(family::deepseek_moe), v2 = bit(family::deepseek_v2),
                          v3 = bit(family::deepseek_v3);
inline constexpr unsigned all = llama | moe | v2 | v3, latent = v2 | v3, grouped = llama | moe, sparse = moe | v2 | v3;

/// What a file may leave out. `nullable` keys have to be there, though null is a value: it means 0.
enum class presence : unsigned char { required, nullable, optional };

struct size_key {
    const char* name;
    integer model_config::*member;
    unsigned families;
    integer least;
    presence given = presence::required;
};

/// In the order in which people read a model.
inline constexpr size_key size_keys[] = {
    {"vocab_size", &model_config::vocab_size, all, 1},
    {"hidden_size", &model_config::hidden_size, all, 1},
    {"num_hidden_layers", &model_config::num_hidden_layers, all, 1},
    {"first_k_dense_replace", &model_config::first_k_dense_replace, sparse, 0},
    {"num_attention_heads", &model_config::num_attention_heads, all, 1},
    {"num_key_value_heads", &model_config::num_key_value_heads, grouped, 1, presence::optional},
    {"head_dim", &model_config::head_dim, grouped, 1, presence::optional},
    {"q_lora_rank", &model_config::q_lora_rank, latent, 1, presence::nullable},
    {"kv_lora_rank", &model_config::kv_lora_rank, latent, 1},
    {"qk_nope_head_dim", &model_config::qk_nope_head_dim, latent, 1},
    {"qk_rope_head_dim", &model_config::qk_rope_head_dim, latent, 1},
    {"v_head_dim", &model_config::v_head_dim, latent, 1},
    {"intermediate_size", &model_config::intermediate_size, all, 1},
    {"moe_intermediate_size", &model_config::moe_intermediate_size, sparse, 0},
    {"n_routed_experts", &model_config::n_routed_experts, sparse, 0},
    {"num_experts_per_tok", &model_config::num_experts_per_tok, sparse, 0},
    {"n_shared_experts", &model_config::n_shared_experts, sparse, 0, presence::nullable},
    {"n_group", &model_config::n_group, v3, 1},
    {"topk_group", &model_config::topk_group, v3, 1},
    {"n_group", &model_config::n_group, v2, 1, presence::optional},
    {"topk_group", &model_config::topk_group, v2, 1, presence::optional},
    {"num_nextn_predict_layers", &model_config::num_nextn_predict_layers, v3, 0, presence::optional},
    {"max_position_embeddings", &model_config::max_position_embeddings, all, 1},
};

struct switch_key {
    const char* name;
    bool model_config::*member;
    unsigned families;
};
inline constexpr switch_key switch_keys[] = {
    {"norm_topk_prob", &model_config::norm_topk_prob, sparse},
    {"tie_word_embeddings", &model_config::tie_word_embeddings, all},
    {"attention_bias", &model_config::attention_bias, all},
    {"rope_interleave", &model_config::rope_interleave, v3},
};

struct real_key {
    const char* name;
    double model_config::*member;
    unsigned families;
    bool may_be_zero;
};
inline constexpr real_key real_keys[] = {
    {"routed_scaling_factor", &model_config::routed_scaling_factor, latent, false},
    {"rms_norm_eps", &model_config::rms_norm_eps, all, false},
    {"initializer_range", &model_config::initializer_range, all, true},
};

using rope = ops::rope_facts;
struct rope_key {
    const char* name;
    double rope::*member;
    bool required;
};
/// Those of YaRN beside its original length; linear scaling has the first.
inline constexpr rope_key rope_keys[] = {
    {"factor", &rope::factor, true},
    {"beta_fast", &rope::beta_fast, false},
    {"beta_slow", &rope::beta_slow, false},
    {"mscale", &rope::mscale, false},
    {"mscale_all_dim", &rope::mscale_all_dim, false},
};
inline constexpr const char* original_length = "original_max_position_embeddings";

struct family_facts {
    family type;
    const char* model_type;    // in a config.json
    const char* architecture;  // in a config.json
    const char* word;          // in a description
    model_config absent;       // what a description means by words that it leaves out
};
inline constexpr family_facts families[] = {
    {family::llama, "llama", "LlamaForCausalLM", "deepseek_llm", {.type = family::llama}},
    {family::deepseek_moe, "deepseek", "DeepseekForCausalLM", "deepseek_moe", {.type = family::deepseek_moe}},
    {family::deepseek_v2, "deepseek_v2", "DeepseekV2ForCausalLM", "deepseek_v2", {.type = family::deepseek_v2}},
    {family::deepseek_v3,
     "deepseek_v3",
     "DeepseekV3ForCausalLM",
     "deepseek_v3",
     {.type = family::deepseek_v3, .routed_scaling_factor = 2.5, .norm_topk_prob = true}},
};
/// Errors: a composed model whose layers are not those of a family.
inline const family_facts& facts_of(family f) {
    if (f == family::composed)
        fail(
            "config.json: found a composed model, expected one whose layers are those of a family: dense ones, then "
            "layers of experts, all written alike");
    return families[static_cast<unsigned>(f)];
}

}  // namespace fathom::models::detail
