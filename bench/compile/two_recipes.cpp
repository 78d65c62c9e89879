// The program of `one_recipe.cpp` with one more recipe of known kinds: another size, length and recomputation.
#include <fathom/fathom.hpp>

namespace program {

using namespace fathom;

struct first
    : deepseek_v3<vocab_size<4'096>, hidden_size<256>, num_hidden_layers<6>, first_k_dense_replace<1>,
                  num_attention_heads<8>, q_lora_rank<96>, kv_lora_rank<64>, qk_nope_head_dim<32>, qk_rope_head_dim<16>,
                  v_head_dim<32>, intermediate_size<704>, moe_intermediate_size<128>, n_routed_experts<16>,
                  num_experts_per_tok<4>, n_shared_experts<1>, n_group<4>, topk_group<2>> {};
struct first_recipe : training<first, mesh<>, precision<weights<fp32>>, sequence_length<256>, micro_batch<8>> {};
struct second
    : deepseek_v3<vocab_size<16'384>, hidden_size<512>, num_hidden_layers<12>, first_k_dense_replace<1>,
                  num_attention_heads<8>, q_lora_rank<192>, kv_lora_rank<128>, qk_nope_head_dim<64>,
                  qk_rope_head_dim<32>, v_head_dim<64>, intermediate_size<1'408>, moe_intermediate_size<256>,
                  n_routed_experts<16>, num_experts_per_tok<4>, n_shared_experts<1>, n_group<4>, topk_group<2>> {};
struct second_recipe : training<second, mesh<>, precision<weights<fp32>>, sequence_length<512>, micro_batch<4>,
                                recompute<norms, swiglu>> {};

template <class Recipe> int train(world& here) {
    auto run = start<Recipe>(here, {.learning_rate = 1e-3});
    training_text text{run, "corpus.bin"};
    while (const auto batch = text.next()) here.print(text_of_result(run.step(*batch)));
    return 0;
}

}  // namespace program

int main(int argc, char** argv) {
    return fathom::launch<fathom::mesh<>>(argc, argv, [](auto& here) {
        return program::train<program::first_recipe>(here) + program::train<program::second_recipe>(here);
    });
}
