// A width of experts would be ignored among the words of the whole model.
#include <fathom/models/composed.hpp>

using namespace fathom;

using latent = attention::latent<num_attention_heads<4>, kv_lora_rank<16>, qk_nope_head_dim<8>, qk_rope_head_dim<8>,
                                 v_head_dim<8>>;
using dense = feed_forward::dense<intermediate_size<48>>;
#ifdef REFUSED
// refused: fathom: a word stands where it says nothing. fix: widths of attention belong in attention::..., of
//     feed-forward layers in feed_forward::..., and what concerns the whole model in language_model<>.
using fact = moe_intermediate_size<64>;
#else
using fact = max_position_embeddings<64>;
#endif
struct model : language_model<vocab_size<64>, hidden_size<32>, repeat<1, block<latent, dense>>,
                              repeat<2, block<latent, dense>>, fact> {};

constexpr auto layers = model::config().num_hidden_layers;
