// The released DeepSeek models as descriptions: what their published configurations say, and examples of how the words
// read.
#pragma once

#include <fathom/models/families.hpp>

/// Initialisation is that of training (N(0, 0.006)); the 0.02 in released config.json files was not used.
namespace fathom::released {

/// DeepSeek LLM 7B (2024).
struct llm_7b : deepseek_llm<vocab_size<102'400>, hidden_size<4'096>, num_hidden_layers<30>, num_attention_heads<32>,
                             intermediate_size<11'008>, max_position_embeddings<4'096>> {};

/// DeepSeek LLM 67B (2024).
struct llm_67b : deepseek_llm<vocab_size<102'400>, hidden_size<8'192>, num_hidden_layers<95>, num_attention_heads<64>,
                              num_key_value_heads<8>, intermediate_size<22'016>, max_position_embeddings<4'096>> {};

/// DeepSeekMoE 16B (2024).
struct moe_16b
    : deepseek_moe<vocab_size<102'400>, hidden_size<2'048>, num_hidden_layers<28>, first_k_dense_replace<1>,
                   num_attention_heads<16>, intermediate_size<10'944>, moe_intermediate_size<1'408>,
                   n_routed_experts<64>, num_experts_per_tok<6>, n_shared_experts<2>, max_position_embeddings<4'096>> {
};

/// DeepSeek-V2-Lite (2024): queries without a latent.
struct v2_lite
    : deepseek_v2<vocab_size<102'400>, hidden_size<2'048>, num_hidden_layers<27>, first_k_dense_replace<1>,
                  num_attention_heads<16>, kv_lora_rank<512>, qk_nope_head_dim<128>, qk_rope_head_dim<64>,
                  v_head_dim<128>, intermediate_size<10'944>, moe_intermediate_size<1'408>, n_routed_experts<64>,
                  num_experts_per_tok<6>, n_shared_experts<2>, max_position_embeddings<163'840>,
                  yarn<factor<40>, original_max_position_embeddings<4'096>, mscale<0.707>, mscale_all_dim<0.707>>> {};

/// DeepSeek-V2 (2024).
struct v2
    : deepseek_v2<vocab_size<102'400>, hidden_size<5'120>, num_hidden_layers<60>, first_k_dense_replace<1>,
                  num_attention_heads<128>, q_lora_rank<1'536>, kv_lora_rank<512>, qk_nope_head_dim<128>,
                  qk_rope_head_dim<64>, v_head_dim<128>, intermediate_size<12'288>, moe_intermediate_size<1'536>,
                  n_routed_experts<160>, num_experts_per_tok<6>, n_shared_experts<2>, n_group<8>, topk_group<3>,
                  routed_scaling_factor<16>, max_position_embeddings<163'840>,
                  yarn<factor<40>, original_max_position_embeddings<4'096>, mscale<0.707>, mscale_all_dim<0.707>>> {};

/// DeepSeek-V3, V3.1 and R1 (2024, 2025), with V3's module of multi-token prediction.
struct v3 : deepseek_v3<vocab_size<129'280>, hidden_size<7'168>, num_hidden_layers<61>, first_k_dense_replace<3>,
                        num_attention_heads<128>, q_lora_rank<1'536>, kv_lora_rank<512>, qk_nope_head_dim<128>,
                        qk_rope_head_dim<64>, v_head_dim<128>, intermediate_size<18'432>, moe_intermediate_size<2'048>,
                        n_routed_experts<256>, num_experts_per_tok<8>, n_shared_experts<1>, n_group<8>, topk_group<4>,
                        num_nextn_predict_layers<1>, max_position_embeddings<163'840>,
                        yarn<factor<40>, original_max_position_embeddings<4'096>, mscale<1>, mscale_all_dim<1>>> {};

}  // namespace fathom::released
