// ZeRO has four stages.
#include <fathom/recipe/budget.hpp>

using namespace fathom;

struct model : deepseek_llm<vocab_size<64>, hidden_size<32>, num_hidden_layers<2>, num_attention_heads<4>,
                            intermediate_size<48>, max_position_embeddings<64>> {};

#ifdef REFUSED
// refused: fathom: ZeRO has stages 0 to 3. fix: pick zero<0>, zero<1>, zero<2> or zero<3>.
struct described
    : training<model, mesh<dp<any>>, precision<weights<fp32>>, sequence_length<64>, micro_batch<1>, zero<4>> {};
#else
struct described
    : training<model, mesh<dp<any>>, precision<weights<fp32>>, sequence_length<64>, micro_batch<1>, zero<3>> {};
#endif

constexpr auto batch = described::batch;
