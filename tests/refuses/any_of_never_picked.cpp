// Every recipe of a program that picks one has ranks that it is picked for.
#include <fathom/models.hpp>
#include <fathom/train/any_of.hpp>

using namespace fathom;

struct small : deepseek_llm<vocab_size<32>, hidden_size<16>, num_hidden_layers<2>, num_attention_heads<2>,
                            num_key_value_heads<2>, intermediate_size<32>, max_position_embeddings<16>> {};
struct as_many : training<small, mesh<dp<any>>, precision<weights<fp32>>, sequence_length<8>, micro_batch<1>> {};
struct two : training<small, mesh<dp<2>>, precision<weights<fp32>>, sequence_length<8>, micro_batch<1>> {};

#ifdef REFUSED
// refused: fathom: a recipe of any_of<> is never picked, since one before it fits every number of ranks that fits it.
//     fix: put recipes with fewer possible numbers first, and keep one for each number.
using both = any_of<as_many, two>;
#else
using both = any_of<two, as_many>;
#endif

constexpr auto place = both::place_for(2);
