// A plan says before anything runs what a rank holds and what a step computes.
#include <doctest/doctest.h>

#include <cstring>
#include <fathom/recipe/plan.hpp>
#include <string>

namespace fathom::test {

namespace {

template <class... More>
struct small : deepseek_v3<vocab_size<64>, hidden_size<16>, num_hidden_layers<3>, first_k_dense_replace<1>,
                           num_attention_heads<2>, q_lora_rank<12>, kv_lora_rank<8>, qk_nope_head_dim<6>,
                           qk_rope_head_dim<4>, v_head_dim<5>, intermediate_size<20>, moe_intermediate_size<6>,
                           n_routed_experts<8>, num_experts_per_tok<3>, n_shared_experts<1>, More...> {};

// Attention: q_a 12 x 16, its norm 12, q_b 20 x 12, kv_a 12 x 16, its norm 8, kv_b 22 x 8, o 16 x 10. Beside it two
// norms of 16 a layer; a dense layer of 3 x 16 x 20; experts: a router of 8 x 16 and its bias, 8 + 1 of 3 x 16 x 6.
constexpr integer attention = 192 + 12 + 240 + 192 + 8 + 176 + 160, norms_of_layer = 32, expert = 288;
constexpr integer outside = 64 * 16,
                  shared_by_all = 16 + 3 * (attention + norms_of_layer) + 960 + 2 * (128 + 8 + expert);
static_assert(parameters_of<small<>>() == 2 * outside + shared_by_all + 2 * 8 * expert);
static_assert(activated_parameters_of<small<>>() == 2 * outside + shared_by_all + 2 * 3 * expert);
static_assert(activated_parameters_of<small<>>(false) == outside + shared_by_all + 2 * 3 * expert);
static_assert(activated_parameters_of<small<>>(false, false) == shared_by_all + 2 * 3 * expert);
static_assert(parameters_of<small<tie_word_embeddings<true>>>() == outside + shared_by_all + 2 * 8 * expert);
static_assert(activated_parameters_of<small<tie_word_embeddings<true>>>(false) ==
              outside + shared_by_all + 2 * 3 * expert);
static_assert(activated_parameters_of<small<tie_word_embeddings<true>>>(false, false) ==
              shared_by_all + 2 * 3 * expert);
static_assert(parameters_of<small<num_nextn_predict_layers<2>>>() == parameters_of<small<>>(),
              "published counts leave multi-token prediction out");

struct fp32_numbers : precision<weights<fp32>> {};
struct bf16_numbers : precision<weights<bf16>> {};
template <class Model, class Numbers, class... Words>
struct recipe_of : training<Model, mesh<>, Numbers, micro_batch<4>, Words...> {};
template <class... Words> using plain = recipe_of<small<>, fp32_numbers, sequence_length<32>, Words...>;

static_assert(plain<>::batch.sequences == 4 && plain<>::batch.length == 32);
static_assert(plain<>::decay == optim::decay::matrices && plain<optimizer::adamw_all>::decay == optim::decay::all);
static_assert(plain<recompute<norms, swiglu>>::again.norms && plain<recompute<norms, swiglu>>::again.swiglu &&
              !plain<recompute<norms, swiglu>>::again.up_projections && !plain<>::again.norms);

// Memory is a function of what backward recomputes and of the number of workers.
static_assert(bytes_per_rank<plain<recompute<norms>>> < bytes_per_rank<plain<>>);
static_assert(bytes_per_rank<plain<recompute<up_projections>>> < bytes_per_rank<plain<>>);
static_assert(bytes_per_rank<plain<recompute<swiglu>>> < bytes_per_rank<plain<>>);
static_assert(bytes_per_rank<plain<recompute<blocks>>> < bytes_per_rank<plain<>>);
static_assert(bytes_per_rank<plain<recompute<norms, up_projections, swiglu>>> <
              bytes_per_rank<plain<recompute<up_projections, swiglu>>>);
static_assert(bytes_per_rank<plain<>>(host_workers<8>{}) > bytes_per_rank<plain<>>(host_workers<1>{}));
static_assert(bytes_per_rank<plain<>>(host_workers<8>{}) - bytes_per_rank<plain<>>(host_workers<4>{}) ==
              4 * (bytes_per_rank<plain<>>(host_workers<2>{}) - bytes_per_rank<plain<>>(host_workers<1>{})));
static_assert(bytes_per_rank<plain<>>(host_workers<4>{}) == bytes_per_rank<plain<>>(dp<1>{}));
static_assert(bytes_per_rank<recipe_of<small<>, bf16_numbers, sequence_length<32>>> < bytes_per_rank<plain<>>);

// Attention keeps no scores: twice the sequence is at most 2.1 times the bytes where they are nearly all activations,
// and all of a rank's bytes are fewer than the scores of one layer would be.
struct latent_heads
    : deepseek_v3<vocab_size<64>, hidden_size<64>, num_hidden_layers<2>, first_k_dense_replace<2>,
                  num_attention_heads<32>, q_lora_rank<32>, kv_lora_rank<32>, qk_nope_head_dim<16>, qk_rope_head_dim<8>,
                  v_head_dim<16>, intermediate_size<64>, max_position_embeddings<8192>> {};
struct grouped_heads : deepseek_llm<vocab_size<64>, hidden_size<512>, num_hidden_layers<2>, num_attention_heads<32>,
                                    num_key_value_heads<8>, intermediate_size<64>, max_position_embeddings<8192>> {};
template <class Model, integer Length, class... Words>
using long_recipe = training<Model, mesh<>, fp32_numbers, micro_batch<1>, sequence_length<Length>, Words...>;
template <class Model, class... Words> constexpr bool attention_memory_is_linear() {
    constexpr integer once = bytes_per_rank<long_recipe<Model, 4096, Words...>>,
                      twice = bytes_per_rank<long_recipe<Model, 8192, Words...>>;
    constexpr integer scores = Model::config().num_attention_heads * integer{8192} * 8192 * 4;
    return twice * 10 <= once * 21 && twice * 10 >= once * 18 && twice < scores / 4;
}
static_assert(attention_memory_is_linear<latent_heads>() &&
              attention_memory_is_linear<latent_heads, recompute<blocks>>());
static_assert(attention_memory_is_linear<grouped_heads>());

}  // namespace

TEST_CASE("plan: items follow each other without gap or overlap and sum up to the bytes") {
    constexpr auto check = [](const planning::plan& p) {
        integer at = 0;
        for (integer i = 0; i < p.memory.count; ++i) {
            const auto& item = p.memory.items[static_cast<std::size_t>(i)];
            INFO(item.name);
            CHECK(item.offset == at);
            CHECK(item.bytes > 0);
            CHECK(item.bytes % arena::alignment == 0);
            at += item.bytes;
        }
        CHECK(at == p.bytes);
    };
    constexpr auto kept = planning::plan_of<plain<>>(), recomputed = planning::plan_of<plain<recompute<blocks>>>();
    constexpr auto predicting =
        planning::plan_of<recipe_of<small<num_nextn_predict_layers<2>>, bf16_numbers, sequence_length<32>>>();
    check(kept);
    check(recomputed);
    check(predicting);
    static_assert(predicting.bytes ==
                  bytes_per_rank<recipe_of<small<num_nextn_predict_layers<2>>, bf16_numbers, sequence_length<32>>>);
}

TEST_CASE("plan: more workers take more scratch, as if it had been lowered with so many") {
    for (const integer workers : {1, 5}) {
        const planning::plan asked = planning::plan_of<plain<>>(workers),
                             lowered = planning::lower(planning::transformer_of<plain<>>(),
                                                       {.batch = plain<>::batch, .workers = workers});
        CHECK(asked.bytes == lowered.bytes);
        REQUIRE(asked.memory.count == lowered.memory.count);
        for (std::size_t i = 0; i < static_cast<std::size_t>(asked.memory.count); ++i) {
            CHECK(asked.memory.items[i].offset == lowered.memory.items[i].offset);
            CHECK(asked.memory.items[i].bytes == lowered.memory.items[i].bytes);
            CHECK(asked.memory.items[i].count == lowered.memory.items[i].count);
        }
    }
}

TEST_CASE("plan: every item says how long it lives and whose it is") {
    constexpr auto p =
        planning::plan_of<recipe_of<small<num_nextn_predict_layers<2>>, bf16_numbers, sequence_length<32>>>(3);
    struct expected {
        const char* name;
        lifetime lives;
        integer first, count;
    };
    constexpr expected all[] = {
        {"weights", lifetime::run, 0, 1},
        {"master weights", lifetime::run, 0, 1},
        {"first moments", lifetime::run, 0, 1},
        {"second moments", lifetime::run, 0, 1},
        {"gradients", lifetime::step, 0, 1},
        {"router biases and loads", lifetime::run, 0, 1},
        {"step state and rotary tables", lifetime::run, 0, 1},
        {"inputs", lifetime::step, 0, 1},
        {"embedding", lifetime::saved, 0, 1},
        {"blocks", lifetime::saved, 0, 1},
        {"blocks", lifetime::saved, 1, 2},
        {"final norm", lifetime::saved, 0, 1},
        {"multi-token prediction", lifetime::saved, 3, 2},
        {"between input and weight gradients", lifetime::deferred, 0, 1},
        {"inside one layer's call", lifetime::call, 0, 1},
        {"scratch of workers", lifetime::call, 0, 3},
    };
    REQUIRE(p.memory.count == std::size(all));
    for (std::size_t i = 0; i < std::size(all); ++i) {
        CHECK(std::string{p.memory.items[i].name} == all[i].name);
        CHECK(p.memory.items[i].lives == all[i].lives);
        CHECK(p.memory.items[i].first == all[i].first);
        CHECK(p.memory.items[i].count == all[i].count);
    }
    CHECK(p.memory.items[0].bytes == p.memory.items[1].bytes / 2);  // bf16 beside fp32
    CHECK(p.memory.items[1].bytes == p.memory.items[4].bytes);
    constexpr auto single = planning::plan_of<plain<>>();
    CHECK(std::string{single.memory.items[1].name} == "first moments");  // weights in fp32 are their own master
}

TEST_CASE("plan: parameters and floating-point operations by hand") {
    constexpr auto p = planning::plan_of<plain<>>();
    static_assert(p.parameters == parameters_of<small<>>());
    static_assert(p.activated_parameters == activated_parameters_of<small<>>());
    static_assert(p.embedding_parameters == outside);
    // Products of one token: the head, three times attention without its norms, one dense layer, two of experts.
    constexpr integer products = outside + 3 * (attention - 12 - 8) + 960 + 2 * (128 + (3 + 1) * expert);
    constexpr integer pairs = 3 * 2 * (10 + 5);  // layers, heads, widths of a score and of a value
    CHECK(p.flops == 6.0 * 4 * 32 * (products + pairs * 32 / 2.0));
}

}  // namespace fathom::test
