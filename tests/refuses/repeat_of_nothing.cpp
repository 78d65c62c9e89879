// Layers that are repeated no times are not there.
#include <fathom/models/composed.hpp>

using namespace fathom;

using latent = attention::latent<num_attention_heads<4>, kv_lora_rank<16>, qk_nope_head_dim<8>, qk_rope_head_dim<8>,
                                 v_head_dim<8>>;
using dense = feed_forward::dense<intermediate_size<48>>;
#ifdef REFUSED
// refused: fathom: repeat<> takes a number of layers and a block. fix: repeat<N, block<...>> with N above 0.
using fact = repeat<0, block<latent, dense>>;
#else
using fact = repeat<1, block<latent, dense>>;
#endif
struct model : language_model<vocab_size<64>, hidden_size<32>, repeat<1, block<latent, dense>>, fact> {};

constexpr auto layers = model::config().num_hidden_layers;
