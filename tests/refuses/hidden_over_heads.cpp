// Without head_dim<N> the heads share the hidden size.
#include <fathom/models/families.hpp>

using namespace fathom;

#ifdef REFUSED
// refused: fathom: hidden_size must divide evenly over attention heads. fix: pick num_attention_heads<N> that
//     divides it, or give head_dim<N>.
using fact = num_attention_heads<7>;
#else
using fact = num_attention_heads<6>;
#endif
struct model : deepseek_llm<vocab_size<64>, hidden_size<48>, num_hidden_layers<2>, fact, intermediate_size<64>> {};

constexpr auto layers = model::config().num_hidden_layers;
