// Every rank has as many ids of the vocabulary.
#include <fathom/recipe/budget.hpp>

using namespace fathom;

struct model : deepseek_llm<vocab_size<62>, hidden_size<32>, num_hidden_layers<2>, num_attention_heads<4>,
                            intermediate_size<48>, max_position_embeddings<64>> {};

#ifdef REFUSED
// refused: fathom: the vocabulary must divide evenly over the tensor axis. fix: pick tp<N> where N divides
//     vocab_size, or raise vocab_size to a multiple of it.
using layout = mesh<tp<4>>;
#else
using layout = mesh<tp<2>>;
#endif

struct described : training<model, layout, precision<weights<fp32>>, sequence_length<64>, micro_batch<1>> {};
constexpr auto batch = described::batch;
