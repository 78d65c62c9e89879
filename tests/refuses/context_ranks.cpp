// Every rank has an early and a late part of a sequence.
#include <fathom/recipe/budget.hpp>

using namespace fathom;

struct model : deepseek_llm<vocab_size<60>, hidden_size<32>, num_hidden_layers<2>, num_attention_heads<4>,
                            intermediate_size<48>, max_position_embeddings<64>> {};

#ifdef REFUSED
// refused: fathom: sequences must divide evenly over the context axis. fix: pick sequence_length<N> as a
//     multiple of twice cp<N>: each rank has an early and a late part.
using layout = mesh<cp<4>>;
#else
using layout = mesh<cp<2>>;
#endif

struct described : training<model, layout, precision<weights<fp32>>, sequence_length<60>, micro_batch<1>> {};
constexpr auto batch = described::batch;
