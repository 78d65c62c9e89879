// The columns of a dense layer divide.
#include <fathom/recipe/budget.hpp>

using namespace fathom;

struct model : deepseek_llm<vocab_size<60>, hidden_size<32>, num_hidden_layers<2>, num_attention_heads<4>,
                            intermediate_size<46>, max_position_embeddings<64>> {};

#ifdef REFUSED
// refused: fathom: the width of dense layers must divide evenly over the tensor axis. fix: pick tp<N> where N
//     divides intermediate_size.
using layout = mesh<tp<4>>;
#else
using layout = mesh<tp<2>>;
#endif

struct described : training<model, layout, precision<weights<fp32>>, sequence_length<64>, micro_batch<1>> {};
constexpr auto batch = described::batch;
