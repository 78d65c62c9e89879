// A table is for so many ranks and micro-batches, and for no others.
#include <fathom/recipe/budget.hpp>

using namespace fathom;
using schedule::work;

struct model : deepseek_llm<vocab_size<64>, hidden_size<32>, num_hidden_layers<4>, num_attention_heads<4>,
                            intermediate_size<48>, max_position_embeddings<64>> {};
struct mine {
    static constexpr schedule::shape shape{.ranks = 2, .micro_batches = 1};
    static constexpr schedule::step steps[] = {
        {0, work::forward, 0}, {0, work::backward, 0}, {1, work::forward, 0}, {1, work::backward, 0}};
};
template <integer Ranks>
struct described : training<model, mesh<pp<Ranks>>, precision<weights<fp32>>, sequence_length<64>, micro_batch<1>,
                            stages<3, 3>, mine> {};

#ifdef REFUSED
// refused: fathom: a table of your own is for other sizes. fix: give its shape the ranks of pp<N> and the
//     micro-batches of a step.
constexpr integer bytes = bytes_per_rank<described<2>>(dp<1>{}, micro_batches<3>{});
#else
constexpr integer bytes = bytes_per_rank<described<2>>(dp<1>{}, micro_batches<1>{});
#endif
