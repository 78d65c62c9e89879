// One rank is a layout, too.
#include <fathom/recipe/budget.hpp>

using namespace fathom;

struct model : deepseek_llm<vocab_size<64>, hidden_size<32>, num_hidden_layers<2>, num_attention_heads<4>,
                            intermediate_size<48>, max_position_embeddings<64>> {};

#ifdef REFUSED
// refused: fathom: training<> names its layout second. fix: put mesh<...> after the model; mesh<> is one rank.
struct described : training<model, model, precision<weights<fp32>>, sequence_length<64>, micro_batch<1>> {};
#else
struct described : training<model, mesh<>, precision<weights<fp32>>, sequence_length<64>, micro_batch<1>> {};
#endif

constexpr auto batch = described::batch;
