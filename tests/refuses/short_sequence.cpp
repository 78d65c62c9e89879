// A prediction module of depth k has k tokens fewer.
#include <fathom/recipe/budget.hpp>

using namespace fathom;

struct model
    : deepseek_v3<vocab_size<64>, hidden_size<32>, num_hidden_layers<2>, num_attention_heads<4>, q_lora_rank<24>,
                  kv_lora_rank<16>, qk_nope_head_dim<12>, qk_rope_head_dim<8>, v_head_dim<10>, intermediate_size<48>,
                  moe_intermediate_size<12>, n_routed_experts<8>, num_experts_per_tok<3>, n_shared_experts<1>,
                  n_group<4>, topk_group<2>, num_nextn_predict_layers<2>> {};

#ifdef REFUSED
// refused: fathom: a sequence is too short for multi-token prediction. fix: pick sequence_length<N> above
//     num_nextn_predict_layers.
struct described : training<model, mesh<>, precision<weights<fp32>>, sequence_length<2>, micro_batch<2>> {};
#else
struct described : training<model, mesh<>, precision<weights<fp32>>, sequence_length<3>, micro_batch<2>> {};
#endif

constexpr auto batch = described::batch;
