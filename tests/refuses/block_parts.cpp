// A block is attention before a feed-forward layer.
#include <fathom/models/composed.hpp>

using namespace fathom;

using latent = attention::latent<num_attention_heads<4>, kv_lora_rank<16>, qk_nope_head_dim<8>, qk_rope_head_dim<8>,
                                 v_head_dim<8>>;
using dense = feed_forward::dense<intermediate_size<48>>;
#ifdef REFUSED
// refused: fathom: a block is attention, then a feed-forward layer. fix: block<attention::latent<...>,
//     feed_forward::experts<...>>.
using fact = block<dense, latent>;
#else
using fact = block<latent, dense>;
#endif
struct model : language_model<vocab_size<64>, hidden_size<32>, repeat<2, fact>> {};

constexpr auto layers = model::config().num_hidden_layers;
