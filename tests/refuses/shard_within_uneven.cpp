// Every data rank shards with as many others.
#include <fathom/recipe/budget.hpp>

using namespace fathom;

struct model : deepseek_llm<vocab_size<64>, hidden_size<32>, num_hidden_layers<2>, num_attention_heads<4>,
                            intermediate_size<48>, max_position_embeddings<64>> {};

#ifdef REFUSED
// refused: fathom: ranks that shard must divide the data ranks. fix: pick shard_within<N> where N divides dp x cp.
struct described : training<model, mesh<dp<2>, cp<2>>, precision<weights<fp32>>, sequence_length<64>, micro_batch<1>,
                            zero<2>, shard_within<3>> {};
#else
struct described : training<model, mesh<dp<2>, cp<2>>, precision<weights<fp32>>, sequence_length<64>, micro_batch<1>,
                            zero<2>, shard_within<4>> {};
#endif

constexpr auto batch = described::batch;
