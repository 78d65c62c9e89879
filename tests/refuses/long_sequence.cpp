// Rotary tables go to max_position_embeddings.
#include <fathom/recipe/budget.hpp>

using namespace fathom;

struct model : deepseek_llm<vocab_size<64>, hidden_size<32>, num_hidden_layers<2>, num_attention_heads<4>,
                            intermediate_size<48>, max_position_embeddings<64>> {};

#ifdef REFUSED
// refused: fathom: a sequence is longer than the model has positions. fix: pick sequence_length<N> of at most
//     max_position_embeddings, or raise the latter.
struct described : training<model, mesh<>, precision<weights<fp32>>, sequence_length<65>, micro_batch<2>> {};
#else
struct described : training<model, mesh<>, precision<weights<fp32>>, sequence_length<64>, micro_batch<2>> {};
#endif

constexpr auto batch = described::batch;
