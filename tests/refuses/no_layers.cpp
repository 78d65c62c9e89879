// A model is made of layers.
#include <fathom/models/composed.hpp>

using namespace fathom;

using latent = attention::latent<num_attention_heads<4>, kv_lora_rank<16>, qk_nope_head_dim<8>, qk_rope_head_dim<8>,
                                 v_head_dim<8>>;
using dense = feed_forward::dense<intermediate_size<48>>;
#ifdef REFUSED
// refused: fathom: a composed model has no layers. fix: give language_model<> one repeat<N, block<...>> or more.
using fact = num_hidden_layers<1>;
#else
using fact = repeat<1, block<latent, dense>>;
#endif
struct model : language_model<vocab_size<64>, hidden_size<32>, fact> {};

constexpr auto layers = model::config().num_hidden_layers;
