// One table of rotary angles serves all layers.
#include <fathom/models/composed.hpp>

using namespace fathom;

using latent = attention::latent<num_attention_heads<4>, kv_lora_rank<16>, qk_nope_head_dim<8>, qk_rope_head_dim<8>,
                                 v_head_dim<8>>;
using dense = feed_forward::dense<intermediate_size<48>>;
#ifdef REFUSED
// refused: fathom: attention layers of one model must turn equally wide heads. fix: give all the same
//     qk_rope_head_dim<N>, or head_dim<N>.
using fact = attention::grouped_query<num_attention_heads<2>>;
#else
using fact = attention::grouped_query<num_attention_heads<4>>;
#endif
struct model
    : language_model<vocab_size<64>, hidden_size<32>, repeat<1, block<latent, dense>>, repeat<1, block<fact, dense>>> {
};

constexpr auto layers = model::config().num_hidden_layers;
