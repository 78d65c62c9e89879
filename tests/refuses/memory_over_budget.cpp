// Memory is known before a run, and can be bounded.
#include <fathom/recipe/budget.hpp>

using namespace fathom;

struct model : deepseek_llm<vocab_size<64>, hidden_size<32>, num_hidden_layers<2>, num_attention_heads<4>,
                            intermediate_size<48>, max_position_embeddings<64>> {};

struct described : training<model, mesh<>, precision<weights<fp32>>, sequence_length<64>, micro_batch<2>> {};

#ifdef REFUSED
// refused: fathom: the recipe needs more memory than its budget. fix: lower micro_batch<N> or
//     sequence_length<N>, recompute more (recompute<norms, up_projections, swiglu> or recompute<blocks>), keep
//     weights<bf16>, or raise the budget.
static_assert(fits_in<described, 2_MiB>);
#else
static_assert(fits_in<described, 16_MiB>);
#endif

constexpr auto batch = described::batch;
