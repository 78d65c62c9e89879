// What a token chooses lies in the groups that it keeps.
#include <fathom/models/families.hpp>

using namespace fathom;

#ifdef REFUSED
// refused: fathom: the groups that a token keeps hold fewer experts than it chooses. fix: raise topk_group<N>,
//     or lower n_group<N> or num_experts_per_tok<N>.
using fact = num_experts_per_tok<5>;
#else
using fact = num_experts_per_tok<4>;
#endif
struct model : deepseek_v3<vocab_size<64>, hidden_size<32>, num_hidden_layers<3>, first_k_dense_replace<1>,
                           num_attention_heads<4>, q_lora_rank<24>, kv_lora_rank<16>, qk_nope_head_dim<12>,
                           qk_rope_head_dim<8>, v_head_dim<10>, intermediate_size<48>, moe_intermediate_size<12>,
                           n_routed_experts<8>, n_shared_experts<1>, n_group<4>, topk_group<2>, fact> {};

constexpr auto layers = model::config().num_hidden_layers;
