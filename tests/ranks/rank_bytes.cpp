// No rank takes more memory than its recipe's plan says, and the one that needs most takes exactly that.
#include <doctest/doctest.h>

#include <algorithm>
#include <fathom/comm.hpp>
#include <fathom/recipe/plan.hpp>
#include <fathom/train/engine.hpp>
#include <vector>

#include "engines.hpp"

namespace fathom::test {
namespace {

struct tiny : deepseek_v3<vocab_size<48>, hidden_size<24>, num_hidden_layers<5>, first_k_dense_replace<1>,
                          num_attention_heads<4>, q_lora_rank<12>, kv_lora_rank<8>, qk_nope_head_dim<6>,
                          qk_rope_head_dim<4>, v_head_dim<6>, intermediate_size<16>, moe_intermediate_size<8>,
                          n_routed_experts<8>, num_experts_per_tok<3>, n_shared_experts<1>, num_nextn_predict_layers<1>,
                          max_position_embeddings<32>> {};
template <class Mesh, class... Words>
struct recipe_on : training<tiny, Mesh, precision<weights<fp64>>, sequence_length<16>, micro_batch<2>, Words...> {};

/// Starts every rank of a recipe, with memory for M micro-batches a step, and compares.
template <class Recipe, integer M> void compare_bytes() {
    constexpr degrees mesh = degrees_of<typename Recipe::layout>();
    constexpr integer workers = 2;
    constexpr integer planned = bytes_per_rank<Recipe>(dp<mesh.dp>{}, micro_batches<M>{}, host_workers<workers>{});
    const train::layout_facts layout{.mesh = mesh,
                                     .zero = Recipe::zero_stage,
                                     .shard_within = Recipe::shard_ranks,
                                     .schedule = &schedule::built::of<typename Recipe::pipeline_schedule>,
                                     .layers = &Recipe::layers_of_stage,
                                     .micro_batches = M};
    std::vector<integer> taken(static_cast<std::size_t>(mesh.ranks()));
    comm::threads::run(mesh.ranks(), [&](auto& ranks) {
        train::engine<split_latent_fp64> engine{planning::transformer_of<Recipe>(),
                                                {.batch = Recipe::batch, .workers = workers},
                                                0,
                                                optim::adamw_facts{},
                                                comm::link{ranks},
                                                layout};
        taken[static_cast<std::size_t>(ranks.rank())] = engine.arena_bytes();
    });
    for (const integer bytes : taken) CHECK(bytes <= planned);
    CHECK(*std::max_element(taken.begin(), taken.end()) == planned);
}

}  // namespace

TEST_CASE("rank bytes: the plan of every kind of layout is what its largest rank takes") {
    SUBCASE("tensor and experts") { compare_bytes<recipe_on<mesh<tp<4>, ep<2>>>, 1>(); }
    SUBCASE("tensor over tokens that do not divide") { compare_bytes<recipe_on<mesh<cp<2>, tp<4>>>, 1>(); }
    SUBCASE("context") { compare_bytes<recipe_on<mesh<cp<4>>>, 2>(); }
    SUBCASE("experts' tensor ranks") { compare_bytes<recipe_on<mesh<dp<2>, tp<2>, ep<2>, etp<2>>, zero<1>>, 1>(); }
    SUBCASE("pipeline, uneven") { compare_bytes<recipe_on<mesh<pp<2>>, stages<3, 5>>, 4>(); }
    SUBCASE("pipeline, weights put off") {
        compare_bytes<recipe_on<mesh<dp<2>, pp<2>, ep<2>>, zero<1>, schedule::zb_h1>, 4>();
    }
    SUBCASE("DualPipe") { compare_bytes<recipe_on<mesh<dp<2>, pp<4>>, schedule::dual_pipe>, 8>(); }
    SUBCASE("interleaved") {
        compare_bytes<recipe_on<mesh<pp<2>, tp<2>>, schedule::interleaved_one_f_one_b<2>, recompute<norms, swiglu>>,
                      2>();
    }
    SUBCASE("ZeRO-2") { compare_bytes<recipe_on<mesh<dp<4>, tp<2>>, zero<2>>, 1>(); }
    SUBCASE("ZeRO-3") { compare_bytes<recipe_on<mesh<dp<2>, pp<2>, ep<2>>, zero<3>, recompute<blocks>>, 2>(); }
}

}  // namespace fathom::test
