// Every stage has work.
#include <fathom/recipe/budget.hpp>

using namespace fathom;

struct model
    : deepseek_v3<vocab_size<64>, hidden_size<32>, num_hidden_layers<4>, first_k_dense_replace<1>,
                  num_attention_heads<4>, q_lora_rank<24>, kv_lora_rank<16>, qk_nope_head_dim<12>, qk_rope_head_dim<8>,
                  v_head_dim<10>, intermediate_size<48>, moe_intermediate_size<12>, n_routed_experts<6>,
                  num_experts_per_tok<2>, num_nextn_predict_layers<1>, max_position_embeddings<64>> {};

#ifdef REFUSED
// refused: fathom: a stage has no layers. fix: give every stage of stages<...> at least 1, or use fewer.
struct described
    : training<model, mesh<pp<3>>, precision<weights<fp32>>, sequence_length<64>, micro_batch<1>, stages<4, 0, 3>> {};
#else
struct described
    : training<model, mesh<pp<3>>, precision<weights<fp32>>, sequence_length<64>, micro_batch<1>, stages<3, 1, 3>> {};
#endif

constexpr auto batch = described::batch;
