// Ranks for experts need experts.
#include <fathom/recipe/budget.hpp>

using namespace fathom;

struct model : deepseek_llm<vocab_size<60>, hidden_size<32>, num_hidden_layers<2>, num_attention_heads<4>,
                            intermediate_size<48>, max_position_embeddings<64>> {};

#ifdef REFUSED
// refused: fathom: the mesh splits experts and the model has none. fix: leave ep<N> and etp<N> out of it.
using layout = mesh<dp<4>, ep<2>>;
#else
using layout = mesh<dp<4>>;
#endif

struct described : training<model, layout, precision<weights<fp32>>, sequence_length<64>, micro_batch<1>> {};
constexpr auto batch = described::batch;
