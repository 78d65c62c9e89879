// Weights and activations in bf16 beside double and fp32: the same loss and directions within what eight bits hold, and
// the same learning over two hundred steps.
#include <cmath>

#include "described_models.hpp"
#include "oracle.hpp"
#include "reference_models.hpp"

namespace fathom::parity_test {

namespace {

void check_case(const std::string& name, const models::model_config& config) {
    const safetensors::file io{parity::path("oracle/" + name + "/io.safetensors")};
    const integer sequences = io.at("input_ids").shape[0], length = io.at("input_ids").shape[1];
    const auto tokens = parity::integers(io, "input_ids");
    const auto targets = parity::shifted(parity::integers(io, "labels"), length);
    const auto model = run_model<bf16>(config, {.batch = {sequences, length}});
    model->load(parity::path("oracle/" + name));
    const auto seen = model->accumulate({sequences, length, tokens.data(), targets.data()}, {.balance_alpha = 0});
    CHECK(seen.loss == doctest::Approx(parity::numbers(io, "loss")[0]).epsilon(0.02));
    int compared = 0;
    for (const auto& found : model->gradients()) {
        if (found.numbers.size() < 256) continue;
        const auto expected = parity::numbers(io, "grad." + found.name);
        double product = 0, own = 0, other = 0;
        for (std::size_t i = 0; i < expected.size(); ++i) {
            const auto g = static_cast<double>(found.numbers[i]);
            product += g * expected[i];
            own += g * g;
            other += expected[i] * expected[i];
        }
        INFO(found.name, ": ", product, " of ", std::sqrt(own * other));
        CHECK((product > 0.99 * std::sqrt(own * other) || own + other == 0));  // an expert without tokens has none
        ++compared;
    }
    CHECK(compared > 10);
}

/// The small DeepSeek-V3 of the benches.
struct small : deepseek_v3<vocab_size<4096>, hidden_size<256>, num_hidden_layers<6>, first_k_dense_replace<1>,
                           num_attention_heads<8>, q_lora_rank<96>, kv_lora_rank<64>, qk_nope_head_dim<32>,
                           qk_rope_head_dim<16>, v_head_dim<32>, intermediate_size<704>, moe_intermediate_size<128>,
                           n_routed_experts<16>, num_experts_per_tok<4>, n_shared_experts<1>, n_group<4>, topk_group<2>,
                           max_position_embeddings<1024>> {};

/// Text of a small language: each of 1024 words is followed by one of four others, the first half of the time, the
/// next a quarter of the time; one word in eight is any.
std::vector<std::int32_t> learnable_text(std::size_t count) {
    constexpr std::uint32_t words = 1024;
    const random_stream source{17, 0}, grammar{17, 1};
    std::vector<std::int32_t> text(count);
    for (std::size_t i = 1; i < count; ++i) {
        const auto drawn = source.words(i);
        const std::uint32_t die = drawn[0] % 16;
        const std::uint64_t follower = die < 8 ? 0 : die < 12 ? 1 : die < 13 ? 2 : 3;
        text[i] = static_cast<std::int32_t>(
            (die >= 14 ? drawn[1] : grammar.words(static_cast<std::uint64_t>(text[i - 1]) * 4 + follower)[0]) % words);
    }
    return text;
}

/// The mean loss of steps 181 to 200.
template <class T> double learned(double* first) {
    constexpr integer sequences = 8, length = 256;
    constexpr std::size_t tokens = sequences * length, steps = 200;
    const auto text = learnable_text(steps * tokens + 1);
    const auto model = run_model<T>(small::config(), {.batch = {sequences, length}});
    model->initialise(1);
    double last = 0;
    for (std::size_t s = 0; s < steps; ++s) {
        const train::batch_view batch{sequences, length, text.data() + s * tokens, text.data() + s * tokens + 1};
        const double rate = 1e-3 * std::min(1.0, static_cast<double>(s + 1) / 20);
        const double loss = model->step(batch, {.learning_rate = rate}).cross_entropy;
        if (s == 0) *first = loss;
        if (s >= 180) last += loss / 20;
    }
    return last;
}

}  // namespace

TEST_CASE("bf16: loss and directions of gradients are those of double") {
    check_case("v3_plain", described::v3_plain::config());
    check_case("v2_group_limited", described::v2_group_limited::config());
    check_case("llama_gqa", described::llama_gqa::config());
}

TEST_SUITE_BEGIN("all");

TEST_CASE("bf16: two hundred steps learn what they learn in fp32") {
    double first = 0, first_bf16 = 0;
    const double single = learned<float>(&first), half = learned<bf16>(&first_bf16);
    INFO("fp32 ", first, " to ", single, ", bf16 ", first_bf16, " to ", half);
    CHECK(first == doctest::Approx(std::log(4096)).epsilon(0.02));
    CHECK(single < first - 2);  // there was something to learn
    CHECK(std::abs(half / single - 1) < 0.01);
}

TEST_SUITE_END();

}  // namespace fathom::parity_test
