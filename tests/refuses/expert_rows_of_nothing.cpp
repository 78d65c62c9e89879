// Without rows nothing can be received, in however many rounds.
#include <fathom/recipe/training.hpp>

using namespace fathom;

struct model : deepseek_moe<vocab_size<64>, hidden_size<32>, num_hidden_layers<2>, num_attention_heads<4>,
                            moe_intermediate_size<16>, n_routed_experts<4>, num_experts_per_tok<2>,
                            max_position_embeddings<64>> {};
template <class Word>
struct described
    : training<model, mesh<dp<2>, ep<2>>, precision<weights<fp32>>, sequence_length<64>, micro_batch<1>, Word> {};

#ifdef REFUSED
// refused: fathom: experts need rows for their tokens. fix: pick expert_tokens<R> above 0; 2.0 reserves twice what an
// even
//     load brings.
constexpr described<expert_tokens<0>> recipe;
#else
constexpr described<expert_tokens<1.5>> recipe;
#endif
