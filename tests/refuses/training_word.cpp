// A fact of the model does not belong to the training step.
#include <fathom/recipe/budget.hpp>

using namespace fathom;

struct model : deepseek_llm<vocab_size<64>, hidden_size<32>, num_hidden_layers<2>, num_attention_heads<4>,
                            intermediate_size<48>, max_position_embeddings<64>> {};

#ifdef REFUSED
// refused: fathom: training<> got a word that it does not know. fix: sequence_length<N>, micro_batch<N>,
//     schedule::..., stages<...>, optimizer::..., zero<N>, shard_within<N>, expert_tokens<R>, capacity_factor<R>,
//     context_ring and recompute<...> come after the precision.
struct described
    : training<model, mesh<>, precision<weights<fp32>>, sequence_length<64>, micro_batch<1>, hidden_size<32>> {};
#else
struct described
    : training<model, mesh<>, precision<weights<fp32>>, sequence_length<64>, micro_batch<1>, optimizer::adamw_all> {};
#endif

constexpr auto batch = described::batch;
