// Number formats have no default.
#include <fathom/recipe/budget.hpp>

using namespace fathom;

struct model : deepseek_llm<vocab_size<64>, hidden_size<32>, num_hidden_layers<2>, num_attention_heads<4>,
                            intermediate_size<48>, max_position_embeddings<64>> {};

#ifdef REFUSED
// refused: fathom: training<> names its number formats third. fix: put precision<weights<fp32>> (or bf16) after
//     the mesh.
struct described : training<model, mesh<>, sequence_length<64>, micro_batch<1>> {};
#else
struct described : training<model, mesh<>, precision<weights<fp32>>, sequence_length<64>, micro_batch<1>> {};
#endif

constexpr auto batch = described::batch;
