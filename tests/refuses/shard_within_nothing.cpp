// Copies of shards need shards.
#include <fathom/recipe/budget.hpp>

using namespace fathom;

struct model : deepseek_llm<vocab_size<64>, hidden_size<32>, num_hidden_layers<2>, num_attention_heads<4>,
                            intermediate_size<48>, max_position_embeddings<64>> {};

#ifdef REFUSED
// refused: fathom: shard_within<N> without anything to shard. fix: add zero<1>, zero<2> or zero<3>, or leave it out.
struct described
    : training<model, mesh<dp<4>>, precision<weights<fp32>>, sequence_length<64>, micro_batch<1>, shard_within<2>> {};
#else
struct described : training<model, mesh<dp<4>>, precision<weights<fp32>>, sequence_length<64>, micro_batch<1>,
                            shard_within<2>, zero<1>> {};
#endif

constexpr auto batch = described::batch;
