// Query heads share key-value heads in equal groups.
#include <fathom/models/families.hpp>

using namespace fathom;

#ifdef REFUSED
// refused: fathom: attention heads must divide evenly over key-value heads. fix: pick num_key_value_heads<N>
//     where N divides num_attention_heads.
using fact = num_key_value_heads<4>;
#else
using fact = num_key_value_heads<3>;
#endif
struct model : deepseek_llm<vocab_size<64>, hidden_size<48>, num_hidden_layers<2>, num_attention_heads<6>, fact,
                            intermediate_size<64>> {};

constexpr auto layers = model::config().num_hidden_layers;
