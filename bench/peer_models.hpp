// The configurations that are compared with PyTorch, described once for every benchmark.
#pragma once

#include <fathom/recipe/plan.hpp>

namespace fathom::bench {

struct model_S : deepseek_v3<vocab_size<4'096>, hidden_size<256>, num_hidden_layers<6>, first_k_dense_replace<1>,
                             num_attention_heads<8>, q_lora_rank<96>, kv_lora_rank<64>, qk_nope_head_dim<32>,
                             qk_rope_head_dim<16>, v_head_dim<32>, intermediate_size<704>, moe_intermediate_size<128>,
                             n_routed_experts<16>, num_experts_per_tok<4>, n_shared_experts<1>, n_group<4>,
                             topk_group<2>, max_position_embeddings<1'024>, initializer_range<0.02>> {};
struct model_M : deepseek_v3<vocab_size<16'384>, hidden_size<512>, num_hidden_layers<12>, first_k_dense_replace<1>,
                             num_attention_heads<8>, q_lora_rank<192>, kv_lora_rank<128>, qk_nope_head_dim<64>,
                             qk_rope_head_dim<32>, v_head_dim<64>, intermediate_size<1'408>, moe_intermediate_size<256>,
                             n_routed_experts<16>, num_experts_per_tok<4>, n_shared_experts<1>, n_group<4>,
                             topk_group<2>, max_position_embeddings<2'048>, initializer_range<0.02>> {};
struct model_T : deepseek_v3<vocab_size<256>, hidden_size<64>, num_hidden_layers<2>, first_k_dense_replace<1>,
                             num_attention_heads<4>, q_lora_rank<24>, kv_lora_rank<16>, qk_nope_head_dim<16>,
                             qk_rope_head_dim<8>, v_head_dim<16>, intermediate_size<128>, moe_intermediate_size<32>,
                             n_routed_experts<8>, num_experts_per_tok<2>, n_shared_experts<1>, n_group<4>,
                             topk_group<2>, max_position_embeddings<128>, initializer_range<0.02>> {};
struct model_L : deepseek_llm<vocab_size<16'384>, hidden_size<512>, num_hidden_layers<8>, num_attention_heads<8>,
                              num_key_value_heads<4>, intermediate_size<1'408>, max_position_embeddings<2'048>,
                              initializer_range<0.02>> {};

template <class Number>
struct S : training<model_S, mesh<>, precision<weights<Number>>, sequence_length<256>, micro_batch<8>> {};
// What backward recomputes costs little here and keeps memory small.
template <class Number>
struct M : training<model_M, mesh<>, precision<weights<Number>>, sequence_length<512>, micro_batch<4>,
                    recompute<norms, swiglu>> {};
template <class Number>
struct T : training<model_T, mesh<>, precision<weights<Number>>, sequence_length<32>, micro_batch<2>,
                    recompute<norms, swiglu>> {};
template <class Number>
struct L : training<model_L, mesh<>, precision<weights<Number>>, sequence_length<512>, micro_batch<4>,
                    recompute<norms, swiglu>> {};

}  // namespace fathom::bench
