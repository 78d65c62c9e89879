// Two ways of saying how many layers there are must agree.
#include <fathom/models/composed.hpp>

using namespace fathom;

using latent = attention::latent<num_attention_heads<4>, kv_lora_rank<16>, qk_nope_head_dim<8>, qk_rope_head_dim<8>,
                                 v_head_dim<8>>;
using dense = feed_forward::dense<intermediate_size<48>>;
#ifdef REFUSED
// refused: fathom: the layers of the repeats do not add up to num_hidden_layers. fix: change a repeat<N, ...>,
//     or leave num_hidden_layers<N> out.
using fact = num_hidden_layers<4>;
#else
using fact = num_hidden_layers<3>;
#endif
struct model : language_model<vocab_size<64>, hidden_size<32>, repeat<1, block<latent, dense>>,
                              repeat<2, block<latent, dense>>, fact> {};

constexpr auto layers = model::config().num_hidden_layers;
