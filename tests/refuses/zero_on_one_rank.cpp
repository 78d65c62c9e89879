// There is nobody to share optimizer state with.
#include <fathom/recipe/budget.hpp>

using namespace fathom;

struct model : deepseek_llm<vocab_size<64>, hidden_size<32>, num_hidden_layers<2>, num_attention_heads<4>,
                            intermediate_size<48>, max_position_embeddings<64>> {};

#ifdef REFUSED
// refused: fathom: ZeRO shards over data-parallel ranks and there is one. fix: write zero<0>, or give the mesh
//     dp<N> or dp<any>.
struct described : training<model, mesh<>, precision<weights<fp32>>, sequence_length<64>, micro_batch<1>, zero<1>> {};
#else
struct described
    : training<model, mesh<dp<any>>, precision<weights<fp32>>, sequence_length<64>, micro_batch<1>, zero<1>> {};
#endif

constexpr auto batch = described::batch;
