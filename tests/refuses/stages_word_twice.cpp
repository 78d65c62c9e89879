// A pipeline is cut in one way.
#include <fathom/recipe/budget.hpp>

using namespace fathom;

struct model : deepseek_llm<vocab_size<60>, hidden_size<32>, num_hidden_layers<2>, num_attention_heads<4>,
                            intermediate_size<48>, max_position_embeddings<64>> {};

#ifdef REFUSED
// refused: fathom: a word of training<> is given twice. fix: keep one of the two.
struct described : training<model, mesh<pp<2>>, precision<weights<fp32>>, sequence_length<64>, micro_batch<1>,
                            stages<2, 2>, stages<3, 1>> {};
#else
struct described
    : training<model, mesh<pp<2>>, precision<weights<fp32>>, sequence_length<64>, micro_batch<1>, stages<2, 2>> {};
#endif

constexpr auto batch = described::batch;
