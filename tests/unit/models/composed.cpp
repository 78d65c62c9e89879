// Models written layer by layer are the families' models, and models that no family has.
#include <fathom/models/composed.hpp>

#include <doctest/doctest.h>

#include <fathom/models/checkpoint_tensors.hpp>
#include <fathom/models/hugging_face.hpp>
#include <fathom/models/released.hpp>
#include <fathom/recipe/plan.hpp>

namespace {

using namespace fathom;

struct tiny : deepseek_v3<vocab_size<4'096>, hidden_size<256>, num_hidden_layers<6>, first_k_dense_replace<1>,
                          num_attention_heads<8>, q_lora_rank<96>, kv_lora_rank<64>, qk_nope_head_dim<32>,
                          qk_rope_head_dim<16>, v_head_dim<32>, intermediate_size<704>, moe_intermediate_size<128>,
                          n_routed_experts<16>, num_experts_per_tok<4>, n_shared_experts<1>, n_group<4>, topk_group<2>,
                          num_nextn_predict_layers<1>, rms_norm_eps<1e-5>> {};

struct tiny_attention : attention::latent<num_attention_heads<8>, q_lora_rank<96>, kv_lora_rank<64>,
                                          qk_nope_head_dim<32>, qk_rope_head_dim<16>, v_head_dim<32>> {};
struct tiny_experts : feed_forward::experts<moe_intermediate_size<128>, n_routed_experts<16>, num_experts_per_tok<4>,
                                            n_shared_experts<1>, n_group<4>, topk_group<2>> {};
struct composed_tiny : language_model<vocab_size<4'096>, hidden_size<256>, num_nextn_predict_layers<1>,
                                      rms_norm_eps<1e-5>, num_hidden_layers<6>,
                                      repeat<1, block<tiny_attention, feed_forward::dense<intermediate_size<704>>>>,
                                      repeat<5, block<tiny_attention, tiny_experts>>> {};

template <class Model>
struct recipe_of
    : training<Model, mesh<>, precision<weights<bf16>>, sequence_length<64>, micro_batch<2>, recompute<norms>> {};

static_assert(std::is_same_v<decltype(planning::transformer_of<recipe_of<tiny>>()),
                             decltype(planning::transformer_of<recipe_of<composed_tiny>>())>);
static_assert(bytes_per_rank<recipe_of<tiny>>(dp<1>{}) == bytes_per_rank<recipe_of<composed_tiny>>(dp<1>{}));
static_assert(planning::plan_of<recipe_of<tiny>>().flops == planning::plan_of<recipe_of<composed_tiny>>().flops);
static_assert(parameters_of<tiny>() == parameters_of<composed_tiny>());
static_assert(activated_parameters_of<tiny>() == activated_parameters_of<composed_tiny>());

template <class Model> auto tensors() {
    constexpr auto model = Model::family::template transformer<float>(Model::config());
    return models::checkpoint_tensors(model);
}

/// Layers of three kinds, in an order that no family has.
struct mixed
    : language_model<vocab_size<64>, hidden_size<32>,
                     repeat<1, block<attention::grouped_query<num_attention_heads<4>, num_key_value_heads<2>>,
                                     feed_forward::softmax_experts<moe_intermediate_size<8>, n_routed_experts<4>,
                                                                   num_experts_per_tok<1>, n_shared_experts<1>>>>,
                     repeat<2, block<attention::latent<num_attention_heads<2>, kv_lora_rank<8>, qk_nope_head_dim<8>,
                                                       qk_rope_head_dim<8>, v_head_dim<8>>,
                                     feed_forward::dense<intermediate_size<48>>>>,
                     repeat<1, block<attention::latent<num_attention_heads<2>, q_lora_rank<8>, kv_lora_rank<8>,
                                                       qk_nope_head_dim<8>, qk_rope_head_dim<8>, v_head_dim<8>>,
                                     feed_forward::experts<moe_intermediate_size<8>, n_routed_experts<8>,
                                                           num_experts_per_tok<2>, n_shared_experts<0>>>>> {};

struct composed_lite
    : language_model<vocab_size<102'400>, hidden_size<2'048>, max_position_embeddings<163'840>,
                     yarn<factor<40>, original_max_position_embeddings<4'096>, mscale<0.707>, mscale_all_dim<0.707>>,
                     repeat<1, block<attention::latent<num_attention_heads<16>, kv_lora_rank<512>,
                                                       qk_nope_head_dim<128>, qk_rope_head_dim<64>, v_head_dim<128>>,
                                     feed_forward::dense<intermediate_size<10'944>>>>,
                     repeat<26, block<attention::latent<num_attention_heads<16>, kv_lora_rank<512>,
                                                        qk_nope_head_dim<128>, qk_rope_head_dim<64>, v_head_dim<128>>,
                                      feed_forward::softmax_experts<moe_intermediate_size<1'408>, n_routed_experts<64>,
                                                                    num_experts_per_tok<6>, n_shared_experts<2>>>>> {};
static_assert(parameters_of<composed_lite>() == parameters_of<released::v2_lite>());

}  // namespace

TEST_CASE("a composed model is the family's with these layers") {
    CHECK(tensors<tiny>() == tensors<composed_tiny>());
    CHECK(composed_tiny::config().type == models::family::deepseek_v3);
    CHECK_NOTHROW(models::check_same(composed_tiny::config(), tiny::config(), "tiny"));
    CHECK(composed_tiny::config().first_k_dense_replace == 1);
    CHECK(composed_tiny::config().num_hidden_layers == 6);

    constexpr auto family = tiny::family::transformer<float>(tiny::config());
    constexpr auto composed = composed_tiny::family::transformer<float>(composed_tiny::config());
    const auto& one = std::get<1>(family.segments);
    const auto& other = std::get<1>(composed.segments);
    CHECK(one.first == other.first);
    CHECK(one.layer.of.rms_norm_eps == other.layer.of.rms_norm_eps);
    CHECK(one.layer.of.mlp.router.scaling_factor == other.layer.of.mlp.router.scaling_factor);
    CHECK(one.layer.of.mlp.router.score == other.layer.of.mlp.router.score);
    CHECK(one.layer.of.mlp.router.normalise == other.layer.of.mlp.router.normalise);
    CHECK(family.of.rope.dim == composed.of.rope.dim);
    CHECK(family.of.rope.interleaved == composed.of.rope.interleaved);
}

TEST_CASE("softmax experts and scaled positions compose to V2-Lite") {
    CHECK(composed_lite::config().type == models::family::deepseek_v2);
    CHECK_NOTHROW(models::check_same(composed_lite::config(), released::v2_lite::config(), "lite"));
    constexpr auto model = composed_lite::family::transformer<float>(composed_lite::config());
    CHECK(model.of.rope.factor == 40);
    CHECK(std::get<0>(model.segments).layer.of.self_attn.rope.factor == 40);
    CHECK(!std::get<1>(model.segments).layer.of.mlp.router.bias);
}

TEST_CASE("a composed model that no family has is numbered layer by layer and has no config.json") {
    CHECK(mixed::config().type == models::family::composed);
    CHECK(mixed::config().num_hidden_layers == 4);
    const auto all = tensors<mixed>();
    const auto has = [&](std::string_view name, std::vector<std::int64_t> shape) {
        for (const auto& tensor : all)
            if (tensor.name == name) return tensor.shape == shape;
        return false;
    };
    CHECK(has("model.layers.0.self_attn.k_proj.weight", {16, 32}));
    CHECK(has("model.layers.0.mlp.shared_experts.up_proj.weight", {8, 32}));
    CHECK(!has("model.layers.0.mlp.gate.e_score_correction_bias", {4}));
    CHECK(has("model.layers.2.self_attn.q_proj.weight", {32, 32}));
    CHECK(has("model.layers.3.self_attn.q_a_proj.weight", {8, 32}));
    CHECK(has("model.layers.3.mlp.experts.7.down_proj.weight", {32, 8}));
    CHECK(has("model.layers.3.mlp.gate.e_score_correction_bias", {8}));
    CHECK_THROWS_WITH_AS((void)models::config_to_json(mixed::config()),
                         "config.json: found a composed model, expected one whose layers are those of a family: dense "
                         "ones, then layers of experts, all written alike",
                         error);
}
