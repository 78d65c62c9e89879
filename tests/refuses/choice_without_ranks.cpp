// A ring of one rank passes nothing on.
#include <fathom/recipe/training.hpp>

using namespace fathom;

struct model : deepseek_llm<vocab_size<64>, hidden_size<32>, num_hidden_layers<2>, num_attention_heads<4>,
                            intermediate_size<48>, max_position_embeddings<64>> {};
template <class Mesh>
struct described : training<model, Mesh, precision<weights<fp32>>, sequence_length<64>, micro_batch<1>, context_ring> {
};

#ifdef REFUSED
// refused: fathom: a word of training<> is about ranks that split a model, and the mesh splits none. fix: give the
//     mesh ep<N>, tp<N>, cp<N> or pp<N>, or leave expert_tokens<R>, capacity_factor<R> and context_ring out.
constexpr described<mesh<dp<2>>> recipe;
#else
constexpr described<mesh<cp<2>>> recipe;
#endif
