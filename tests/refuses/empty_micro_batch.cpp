// A micro-batch without sequences has no loss.
#include <fathom/recipe/budget.hpp>

using namespace fathom;

struct model : deepseek_llm<vocab_size<64>, hidden_size<32>, num_hidden_layers<2>, num_attention_heads<4>,
                            intermediate_size<48>, max_position_embeddings<64>> {};

#ifdef REFUSED
// refused: fathom: a micro-batch needs tokens. fix: give sequence_length<N> and micro_batch<N>, both above 0.
struct described : training<model, mesh<>, precision<weights<fp32>>, sequence_length<64>> {};
#else
struct described : training<model, mesh<>, precision<weights<fp32>>, sequence_length<64>, micro_batch<1>> {};
#endif

constexpr auto batch = described::batch;
