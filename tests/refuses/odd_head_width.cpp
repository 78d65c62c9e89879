// Rotary embeddings turn pairs of a head.
#include <fathom/models/families.hpp>

using namespace fathom;

#ifdef REFUSED
// refused: fathom: rotary embeddings turn pairs, so their width must be even. fix: pick an even
//     qk_rope_head_dim<N> or head_dim<N>.
using fact = head_dim<9>;
#else
using fact = head_dim<8>;
#endif
struct model : deepseek_llm<vocab_size<64>, hidden_size<48>, num_hidden_layers<2>, num_attention_heads<6>, fact,
                            intermediate_size<64>> {};

constexpr auto layers = model::config().num_hidden_layers;
