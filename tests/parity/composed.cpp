// Composed models train: the same bits as the family's with these layers, right gradients where no family has them, and
// a save that a later run continues from.
#include <fathom/models/composed.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fathom/train/checkpoint.hpp>
#include <fathom/train/run.hpp>

#include "../unit/scratch_folder.hpp"
#include "drawn_batch.hpp"

namespace fathom::parity_test {
namespace {

struct of_a_family
    : deepseek_v3<vocab_size<50>, hidden_size<24>, num_hidden_layers<3>, first_k_dense_replace<1>,
                  num_attention_heads<2>, kv_lora_rank<8>, qk_nope_head_dim<6>, qk_rope_head_dim<4>, v_head_dim<5>,
                  intermediate_size<20>, moe_intermediate_size<6>, n_routed_experts<8>, num_experts_per_tok<3>,
                  n_shared_experts<1>, num_nextn_predict_layers<1>, max_position_embeddings<32>> {};

using latent =
    attention::latent<num_attention_heads<2>, kv_lora_rank<8>, qk_nope_head_dim<6>, qk_rope_head_dim<4>, v_head_dim<5>>;
using grouped = attention::grouped_query<num_attention_heads<6>, num_key_value_heads<2>>;
using dense = feed_forward::dense<intermediate_size<20>>;
using experts =
    feed_forward::experts<moe_intermediate_size<6>, n_routed_experts<8>, num_experts_per_tok<3>, n_shared_experts<1>>;
struct same_as_family
    : language_model<vocab_size<50>, hidden_size<24>, num_nextn_predict_layers<1>, max_position_embeddings<32>,
                     repeat<1, block<latent, dense>>, repeat<2, block<latent, experts>>> {};
/// No family has its order: experts, then two kinds of attention over dense layers.
struct mixed
    : language_model<
          vocab_size<50>, hidden_size<24>, max_position_embeddings<32>, initializer_range<0.2>,
          repeat<1, block<grouped, feed_forward::softmax_experts<moe_intermediate_size<6>, n_routed_experts<4>,
                                                                 num_experts_per_tok<2>, n_shared_experts<1>>>>,
          repeat<2, block<latent, dense>>, repeat<1, block<grouped, experts>>> {};

template <class T> struct numbers : precision<weights<T>> {};
template <class Model, class T>
struct recipe_of : training<Model, mesh<>, numbers<T>, sequence_length<12>, micro_batch<2>> {};

template <class Model, class T> auto start_run(std::uint64_t seed = 1) {
    world here;
    return start<recipe_of<Model, T>>(
        here, {.learning_rate = 3e-3, .warmup_steps = 0, .training_steps = 100, .seed = seed, .workers = 2});
}
template <class Run> auto weights_of(Run& of) {
    const auto& all = of.engine().memory().weights;
    return std::vector<std::remove_cvref_t<decltype(*all.data)>>{all.data, all.data + all.count};
}

const drawn_batch text{3, 12, 50, 7};

}  // namespace

TEST_CASE("composed layers train to the same bits as the family's") {
    auto one = start_run<of_a_family, float>();
    auto other = start_run<same_as_family, float>();
    for (int step = 0; step < 3; ++step) CHECK(one.step(text.view()).loss == other.step(text.view()).loss);
    CHECK(same_bits(weights_of(one), weights_of(other)));
}

TEST_CASE("a composed model that no family has: gradients are those of central differences") {
    auto of = start_run<mixed, double>();
    const train::step_settings settings{.balance_alpha = 0};
    of.engine().accumulate(text.view(), settings);
    int checked = 0;
    of.each_parameter([&](const auto& p, const nn::part& part) {
        // The entry with the largest gradient of each part: rounding is smallest there.
        const auto rows = p.gradient.rows_at(part.first, part.rows);
        const integer at = std::max_element(rows.data, rows.data + rows.size(),
                                            [](double a, double b) { return std::abs(a) < std::abs(b); }) -
                           rows.data;
        double& weight = p.value.rows_at(part.first, part.rows).data[at];
        const double kept = weight, gradient = rows.data[at], h = 1e-5;
        const auto loss_with = [&](double value) {
            weight = value;
            const double loss = of.engine().evaluate(text.view(), settings).loss;
            weight = kept;
            return loss;
        };
        const double difference = (loss_with(kept + h) - loss_with(kept - h)) / (2 * h);
        INFO(p.name);
        CHECK(std::abs(difference - gradient) <= 1e-6 * std::max(1e-2, std::abs(gradient)));
        ++checked;
    });
    CHECK(checked > 40);
}

TEST_CASE("a composed run goes on where its save left it, and not from a family's") {
    const test::scratch_folder folder;
    auto first = start_run<mixed, float>();
    for (int step = 0; step < 2; ++step) first.step(text.view());
    checkpoint::save(first, folder / "run");
    auto second = start_run<mixed, float>(2);
    REQUIRE(checkpoint::resume(second, folder / "run"));
    CHECK(first.step(text.view()).loss == second.step(text.view()).loss);
    CHECK(same_bits(weights_of(first), weights_of(second)));
    auto of_family = start_run<of_a_family, float>();
    CHECK(test::message_of([&] { checkpoint::resume(of_family, folder / "run"); }).find("model is a composed one") !=
          std::string::npos);
}

}  // namespace fathom::parity_test
