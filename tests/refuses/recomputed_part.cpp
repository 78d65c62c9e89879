// Recomputation knows the parts of a block by name.
#include <fathom/recipe/budget.hpp>

using namespace fathom;

struct model : deepseek_llm<vocab_size<64>, hidden_size<32>, num_hidden_layers<2>, num_attention_heads<4>,
                            intermediate_size<48>, max_position_embeddings<64>> {};

#ifdef REFUSED
// refused: fathom: recompute<> got a word that it does not know. fix: norms, up_projections and swiglu, or
//     blocks.
struct described : training<model, mesh<>, precision<weights<fp32>>, sequence_length<64>, micro_batch<1>,
                            recompute<optimizer::adamw>> {};
#else
struct described
    : training<model, mesh<>, precision<weights<fp32>>, sequence_length<64>, micro_batch<1>, recompute<norms, swiglu>> {
};
#endif

constexpr auto batch = described::batch;
