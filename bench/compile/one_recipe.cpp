// A whole program with one recipe: what `two_recipes.cpp` is held against.
#include <fathom/fathom.hpp>

namespace program {

using namespace fathom;

struct first
    : deepseek_v3<vocab_size<4'096>, hidden_size<256>, num_hidden_layers<6>, first_k_dense_replace<1>,
                  num_attention_heads<8>, q_lora_rank<96>, kv_lora_rank<64>, qk_nope_head_dim<32>, qk_rope_head_dim<16>,
                  v_head_dim<32>, intermediate_size<704>, moe_intermediate_size<128>, n_routed_experts<16>,
                  num_experts_per_tok<4>, n_shared_experts<1>, n_group<4>, topk_group<2>> {};
struct first_recipe : training<first, mesh<>, precision<weights<fp32>>, sequence_length<256>, micro_batch<8>> {};

template <class Recipe> int train(world& here) {
    auto run = start<Recipe>(here, {.learning_rate = 1e-3});
    training_text text{run, "corpus.bin"};
    while (const auto batch = text.next()) here.print(text_of_result(run.step(*batch)));
    return 0;
}

}  // namespace program

int main(int argc, char** argv) {
    return fathom::launch<fathom::mesh<>>(argc, argv,
                                          [](auto& here) { return program::train<program::first_recipe>(here); });
}
