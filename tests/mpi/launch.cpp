// Trains a few steps with `launch` and prints what each gave, to every digit: what run.py compares between launchers.
#include <cstdio>
#include <fathom/fathom.hpp>
#include <fathom/mpi.hpp>
#include <vector>

using namespace fathom;

struct small : deepseek_v3<vocab_size<40>, hidden_size<24>, num_hidden_layers<2>, first_k_dense_replace<1>,
                           num_attention_heads<2>, q_lora_rank<12>, kv_lora_rank<8>, qk_nope_head_dim<6>,
                           qk_rope_head_dim<4>, v_head_dim<5>, intermediate_size<20>, moe_intermediate_size<6>,
                           n_routed_experts<8>, num_experts_per_tok<3>, max_position_embeddings<32>> {};
struct ranks : mesh<dp<any>> {};
struct recipe : training<small, ranks, precision<weights<fp64>>, sequence_length<12>, micro_batch<2>> {};

int main(int argc, char** argv) {
    return launch<ranks>(argc, argv, [](world& all) {
        auto run = start<recipe>(all, {.learning_rate = 1e-2, .warmup_steps = 0, .training_steps = 10, .workers = 1});
        constexpr integer sequences = 6, length = 12;
        const integer each = sequences / all.size(), first = all.rank() * each * length;
        for (int step = 0; step < 3; ++step) {
            std::vector<std::int32_t> tokens, targets;
            for (integer i = 0; i < sequences * length; ++i) {
                tokens.push_back(static_cast<std::int32_t>((i * 7 + step) % 40));
                targets.push_back(i % 5 == 0 ? train::ignored : static_cast<std::int32_t>((i * 11 + 3) % 40));
            }
            const auto seen = run.step({each, length, tokens.data() + first, targets.data() + first});
            char line[96];
            std::snprintf(line, sizeof line, "%.17g %.17g %lld", seen.loss, seen.gradient_norm,
                          static_cast<long long>(seen.targets));
            all.print(line);
        }
    });
}
