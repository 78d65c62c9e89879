// A head is on one rank.
#include <fathom/recipe/budget.hpp>

using namespace fathom;

struct model : deepseek_llm<vocab_size<48>, hidden_size<96>, num_hidden_layers<2>, num_attention_heads<12>,
                            num_key_value_heads<4>, intermediate_size<48>, max_position_embeddings<96>> {};

#ifdef REFUSED
// refused: fathom: attention heads must divide evenly over the tensor axis. fix: pick tp<N> where N divides
//     num_attention_heads.
using layout = mesh<tp<8>>;
#else
using layout = mesh<tp<4>>;
#endif

struct described : training<model, layout, precision<weights<fp32>>, sequence_length<64>, micro_batch<1>> {};
constexpr auto batch = described::batch;
