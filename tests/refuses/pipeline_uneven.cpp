// Layers that do not divide have to be said.
#include <fathom/recipe/budget.hpp>

using namespace fathom;

struct model : deepseek_llm<vocab_size<60>, hidden_size<32>, num_hidden_layers<2>, num_attention_heads<4>,
                            intermediate_size<48>, max_position_embeddings<64>> {};

#ifdef REFUSED
// refused: fathom: the layers do not divide evenly over the pipeline's stages. fix: say stages<...>, one
//     number a stage, or pick pp<N> so that its stages divide the layers.
using layout = mesh<pp<3>>;
#else
using layout = mesh<pp<2>>;
#endif

struct described : training<model, layout, precision<weights<fp32>>, sequence_length<64>, micro_batch<1>> {};
constexpr auto batch = described::batch;
