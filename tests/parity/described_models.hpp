// What `describe` prints for the config.json of every stored case, so that the tests compile it and compare it with
// what it prints now.
#pragma once

#include <fathom/models/families.hpp>

namespace described {

using namespace fathom;

// clang-format off
struct llama_gqa : deepseek_llm<
    vocab_size<97>, hidden_size<48>, num_hidden_layers<3>, num_attention_heads<6>, num_key_value_heads<2>,
    head_dim<8>, intermediate_size<80>, max_position_embeddings<128>, initializer_range<0.02>> {};
struct llama_gqa_packed : deepseek_llm<
    vocab_size<97>, hidden_size<48>, num_hidden_layers<3>, num_attention_heads<6>, num_key_value_heads<2>,
    head_dim<8>, intermediate_size<80>, max_position_embeddings<128>, initializer_range<0.02>> {};
struct llama_gqa_traj : deepseek_llm<
    vocab_size<97>, hidden_size<48>, num_hidden_layers<3>, num_attention_heads<6>, num_key_value_heads<2>,
    head_dim<8>, intermediate_size<80>, max_position_embeddings<128>, initializer_range<0.02>> {};
struct llama_linear_rope_tied : deepseek_llm<
    vocab_size<97>, hidden_size<48>, num_hidden_layers<3>, num_attention_heads<6>, num_key_value_heads<6>,
    head_dim<8>, intermediate_size<80>, max_position_embeddings<128>, tie_word_embeddings<true>,
    initializer_range<0.02>, linear_rope<factor<4>>> {};
struct v2_group_limited : deepseek_v2<
    vocab_size<101>, hidden_size<32>, num_hidden_layers<3>, first_k_dense_replace<1>, num_attention_heads<4>,
    q_lora_rank<24>, kv_lora_rank<16>, qk_nope_head_dim<12>, qk_rope_head_dim<8>, v_head_dim<10>,
    intermediate_size<48>, moe_intermediate_size<12>, n_routed_experts<8>, num_experts_per_tok<3>,
    n_shared_experts<2>, n_group<4>, topk_group<2>, max_position_embeddings<256>, routed_scaling_factor<4>,
    initializer_range<0.02>, rope_theta<500>,
    yarn<factor<4>, mscale<1>, mscale_all_dim<0.707>, original_max_position_embeddings<64>>> {};
struct v2_group_limited_traj : deepseek_v2<
    vocab_size<101>, hidden_size<32>, num_hidden_layers<3>, first_k_dense_replace<1>, num_attention_heads<4>,
    q_lora_rank<24>, kv_lora_rank<16>, qk_nope_head_dim<12>, qk_rope_head_dim<8>, v_head_dim<10>,
    intermediate_size<48>, moe_intermediate_size<12>, n_routed_experts<8>, num_experts_per_tok<3>,
    n_shared_experts<2>, n_group<4>, topk_group<2>, max_position_embeddings<256>, routed_scaling_factor<4>,
    initializer_range<0.02>, rope_theta<500>,
    yarn<factor<4>, mscale<1>, mscale_all_dim<0.707>, original_max_position_embeddings<64>>> {};
struct v2lite_greedy : deepseek_v2<
    vocab_size<101>, hidden_size<32>, num_hidden_layers<3>, first_k_dense_replace<1>, num_attention_heads<4>,
    kv_lora_rank<16>, qk_nope_head_dim<12>, qk_rope_head_dim<8>, v_head_dim<10>, intermediate_size<48>,
    moe_intermediate_size<12>, n_routed_experts<8>, num_experts_per_tok<3>, n_shared_experts<2>,
    max_position_embeddings<256>, initializer_range<0.02>, rope_theta<500>,
    yarn<factor<4>, mscale<0.707>, mscale_all_dim<0.707>, original_max_position_embeddings<64>>> {};
struct v3_mtp : deepseek_v3<
    vocab_size<101>, hidden_size<32>, num_hidden_layers<3>, first_k_dense_replace<1>, num_attention_heads<4>,
    q_lora_rank<24>, kv_lora_rank<16>, qk_nope_head_dim<12>, qk_rope_head_dim<8>, v_head_dim<10>,
    intermediate_size<48>, moe_intermediate_size<8>, n_routed_experts<8>, num_experts_per_tok<3>,
    n_shared_experts<1>, n_group<4>, topk_group<2>, num_nextn_predict_layers<1>, max_position_embeddings<256>,
    initializer_range<0.02>> {};
struct v3_packed : deepseek_v3<
    vocab_size<101>, hidden_size<32>, num_hidden_layers<3>, first_k_dense_replace<1>, num_attention_heads<4>,
    q_lora_rank<24>, kv_lora_rank<16>, qk_nope_head_dim<12>, qk_rope_head_dim<8>, v_head_dim<10>,
    intermediate_size<48>, moe_intermediate_size<12>, n_routed_experts<8>, num_experts_per_tok<3>,
    n_shared_experts<1>, n_group<4>, topk_group<2>, max_position_embeddings<256>, initializer_range<0.02>> {};
struct v3_plain : deepseek_v3<
    vocab_size<101>, hidden_size<32>, num_hidden_layers<3>, first_k_dense_replace<1>, num_attention_heads<4>,
    q_lora_rank<24>, kv_lora_rank<16>, qk_nope_head_dim<12>, qk_rope_head_dim<8>, v_head_dim<10>,
    intermediate_size<48>, moe_intermediate_size<12>, n_routed_experts<8>, num_experts_per_tok<3>,
    n_shared_experts<1>, n_group<4>, topk_group<2>, max_position_embeddings<256>, initializer_range<0.02>> {};
struct v3_plain_traj : deepseek_v3<
    vocab_size<101>, hidden_size<32>, num_hidden_layers<3>, first_k_dense_replace<1>, num_attention_heads<4>,
    q_lora_rank<24>, kv_lora_rank<16>, qk_nope_head_dim<12>, qk_rope_head_dim<8>, v_head_dim<10>,
    intermediate_size<48>, moe_intermediate_size<12>, n_routed_experts<8>, num_experts_per_tok<3>,
    n_shared_experts<1>, n_group<4>, topk_group<2>, max_position_embeddings<256>, initializer_range<0.02>> {};
struct v3_qlora_bias_eps : deepseek_v3<
    vocab_size<101>, hidden_size<32>, num_hidden_layers<3>, first_k_dense_replace<1>, num_attention_heads<4>,
    q_lora_rank<24>, kv_lora_rank<16>, qk_nope_head_dim<12>, qk_rope_head_dim<8>, v_head_dim<10>,
    intermediate_size<48>, moe_intermediate_size<12>, n_routed_experts<8>, num_experts_per_tok<3>,
    n_shared_experts<1>, n_group<4>, topk_group<2>, max_position_embeddings<256>, attention_bias<true>,
    rms_norm_eps<0.01>, initializer_range<0.02>> {};
struct v3_switches : deepseek_v3<
    vocab_size<101>, hidden_size<32>, num_hidden_layers<3>, first_k_dense_replace<1>, num_attention_heads<4>,
    kv_lora_rank<16>, qk_nope_head_dim<12>, qk_rope_head_dim<8>, v_head_dim<10>, intermediate_size<48>,
    moe_intermediate_size<12>, n_routed_experts<8>, num_experts_per_tok<3>, n_shared_experts<2>,
    max_position_embeddings<256>, norm_topk_prob<false>, tie_word_embeddings<true>, attention_bias<true>,
    rope_interleave<false>, rms_norm_eps<0.001>, initializer_range<0.02>> {};
struct v3_yarn : deepseek_v3<
    vocab_size<101>, hidden_size<32>, num_hidden_layers<3>, first_k_dense_replace<1>, num_attention_heads<4>,
    q_lora_rank<24>, kv_lora_rank<16>, qk_nope_head_dim<12>, qk_rope_head_dim<8>, v_head_dim<10>,
    intermediate_size<48>, moe_intermediate_size<12>, n_routed_experts<8>, num_experts_per_tok<3>,
    n_shared_experts<1>, n_group<4>, topk_group<2>, max_position_embeddings<256>, initializer_range<0.02>,
    rope_theta<500>, yarn<factor<4>, mscale<1>, mscale_all_dim<0.707>, original_max_position_embeddings<64>>> {};
struct v3_yarn_traj : deepseek_v3<
    vocab_size<101>, hidden_size<32>, num_hidden_layers<3>, first_k_dense_replace<1>, num_attention_heads<4>,
    q_lora_rank<24>, kv_lora_rank<16>, qk_nope_head_dim<12>, qk_rope_head_dim<8>, v_head_dim<10>,
    intermediate_size<48>, moe_intermediate_size<12>, n_routed_experts<8>, num_experts_per_tok<3>,
    n_shared_experts<1>, n_group<4>, topk_group<2>, max_position_embeddings<256>, initializer_range<0.02>,
    rope_theta<500>, yarn<factor<4>, mscale<1>, mscale_all_dim<0.707>, original_max_position_embeddings<64>>> {};
struct v3_all : deepseek_v3<
    vocab_size<101>, hidden_size<32>, num_hidden_layers<3>, first_k_dense_replace<1>, num_attention_heads<4>,
    q_lora_rank<24>, kv_lora_rank<16>, qk_nope_head_dim<12>, qk_rope_head_dim<8>, v_head_dim<10>,
    intermediate_size<48>, moe_intermediate_size<8>, n_routed_experts<8>, num_experts_per_tok<3>,
    n_shared_experts<1>, n_group<4>, topk_group<2>, num_nextn_predict_layers<2>, max_position_embeddings<256>,
    initializer_range<0.02>> {};
struct v3_all_trajectory : deepseek_v3<
    vocab_size<101>, hidden_size<32>, num_hidden_layers<3>, first_k_dense_replace<1>, num_attention_heads<4>,
    q_lora_rank<24>, kv_lora_rank<16>, qk_nope_head_dim<12>, qk_rope_head_dim<8>, v_head_dim<10>,
    intermediate_size<48>, moe_intermediate_size<8>, n_routed_experts<8>, num_experts_per_tok<3>,
    n_shared_experts<1>, n_group<4>, topk_group<2>, num_nextn_predict_layers<2>, max_position_embeddings<256>,
    initializer_range<0.02>> {};
struct v3_balance : deepseek_v3<
    vocab_size<101>, hidden_size<32>, num_hidden_layers<3>, first_k_dense_replace<1>, num_attention_heads<4>,
    q_lora_rank<24>, kv_lora_rank<16>, qk_nope_head_dim<12>, qk_rope_head_dim<8>, v_head_dim<10>,
    intermediate_size<48>, moe_intermediate_size<12>, n_routed_experts<8>, num_experts_per_tok<3>,
    n_shared_experts<1>, n_group<4>, topk_group<2>, max_position_embeddings<256>, initializer_range<0.02>> {};
struct v3_mtp2 : deepseek_v3<
    vocab_size<101>, hidden_size<32>, num_hidden_layers<3>, first_k_dense_replace<1>, num_attention_heads<4>,
    q_lora_rank<24>, kv_lora_rank<16>, qk_nope_head_dim<12>, qk_rope_head_dim<8>, v_head_dim<10>,
    intermediate_size<48>, moe_intermediate_size<8>, n_routed_experts<8>, num_experts_per_tok<3>,
    n_shared_experts<1>, n_group<4>, topk_group<2>, num_nextn_predict_layers<2>, max_position_embeddings<256>,
    initializer_range<0.02>> {};
struct v3_z_loss : deepseek_v3<
    vocab_size<101>, hidden_size<32>, num_hidden_layers<3>, first_k_dense_replace<1>, num_attention_heads<4>,
    q_lora_rank<24>, kv_lora_rank<16>, qk_nope_head_dim<12>, qk_rope_head_dim<8>, v_head_dim<10>,
    intermediate_size<48>, moe_intermediate_size<12>, n_routed_experts<8>, num_experts_per_tok<3>,
    n_shared_experts<1>, n_group<4>, topk_group<2>, max_position_embeddings<256>, initializer_range<0.02>> {};
// clang-format on

}  // namespace described
