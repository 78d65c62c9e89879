// A layout is no fact of a model.
#include <fathom/models/families.hpp>
#include <fathom/parallel/mesh.hpp>

using namespace fathom;

#ifdef REFUSED
// refused: fathom: a model is described by model words only. fix: use words such as hidden_size<N>; layouts and
//     precision belong to mesh<> and precision<>.
using fact = dp<2>;
#else
using fact = attention_bias<true>;
#endif
struct model
    : deepseek_v3<vocab_size<64>, hidden_size<32>, num_hidden_layers<3>, first_k_dense_replace<1>,
                  num_attention_heads<4>, q_lora_rank<24>, kv_lora_rank<16>, qk_nope_head_dim<12>, qk_rope_head_dim<8>,
                  v_head_dim<10>, intermediate_size<48>, moe_intermediate_size<12>, n_routed_experts<8>,
                  num_experts_per_tok<3>, n_shared_experts<1>, n_group<4>, topk_group<2>, fact> {};

constexpr auto layers = model::config().num_hidden_layers;
