// The engine: its arena is the plan's, a step asks for no memory, and bad input moves nothing.
#include <fathom/train/engine.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <fathom/models/families.hpp>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "counted_new.hpp"

namespace fathom::test {

namespace {

struct tiny : deepseek_v3<vocab_size<50>, hidden_size<24>, num_hidden_layers<3>, first_k_dense_replace<1>,
                          num_attention_heads<2>, q_lora_rank<12>, kv_lora_rank<8>, qk_nope_head_dim<6>,
                          qk_rope_head_dim<4>, v_head_dim<5>, intermediate_size<20>, moe_intermediate_size<6>,
                          n_routed_experts<8>, num_experts_per_tok<3>, n_shared_experts<1>, num_nextn_predict_layers<2>,
                          max_position_embeddings<32>> {};
struct numbers : precision<weights<fp32>> {};
struct recipe_of_tiny : training<tiny, mesh<>, numbers, sequence_length<16>, micro_batch<2>, recompute<norms, swiglu>> {
};

using engine_type = train::engine<decltype(planning::transformer_of<recipe_of_tiny>())>;
constexpr integer workers = 3, bytes = bytes_per_rank<recipe_of_tiny>(host_workers<workers>{});

std::unique_ptr<engine_type> make_engine(integer arena_bytes = bytes) {
    auto engine = std::make_unique<engine_type>(
        planning::transformer_of<recipe_of_tiny>(),
        planning::rank_shape{.batch = recipe_of_tiny::batch, .workers = workers}, arena_bytes, optim::adamw_facts{});
    engine->initialise(1);
    return engine;
}

/// Tokens that count up, each the target of the one before it.
struct counting_batch {
    integer sequences, length;
    std::vector<std::int32_t> tokens, targets;
    counting_batch(integer rows, integer columns) : sequences(rows), length(columns) {
        for (integer i = 0; i < rows * columns; ++i) {
            tokens.push_back(static_cast<std::int32_t>(i * 7 % 50));
            targets.push_back(static_cast<std::int32_t>((i + 1) * 7 % 50));
        }
    }
    [[nodiscard]] train::batch_view view() const { return {sequences, length, tokens.data(), targets.data()}; }
};

template <class Call> std::string error_of(Call&& call) {
    try {
        call();
    } catch (const error& e) {
        return e.what();
    }
    return "no error";
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

constexpr train::step_settings settings{.learning_rate = 1e-3, .balance_alpha = 0.01, .z_loss = 1e-3};

}  // namespace

TEST_CASE("engine: the arena is exactly the bytes of the recipe") {
    CHECK(make_engine()->arena_bytes() == bytes);
    CHECK(has(error_of([] { make_engine(bytes + 64); }),
              text_of("carved ", bytes, " bytes of an arena of ", bytes + 64)));
}

TEST_CASE("engine: a step asks for no memory") {
    const auto engine = make_engine();
    const counting_batch whole{4, 16}, ragged{3, 11};
    for (const auto* batch : {&whole, &ragged}) {
        engine->step(batch->view(), settings);
        engine->evaluate(batch->view(), settings);
    }
    long before = allocations();
    const auto probe = std::make_unique<int>(1);
    CHECK(allocations() == before + 1);  // they are counted
    before = allocations();
    engine->step(whole.view(), settings);
    const long of_step = allocations() - before;
    before = allocations();
    engine->step(ragged.view(), settings);  // another shape, and a smaller last micro-batch
    const long of_ragged_step = allocations() - before;
    before = allocations();
    engine->evaluate(ragged.view(), settings);
    const long of_evaluation = allocations() - before;
    CHECK(of_step == 0);
    CHECK(of_ragged_step == 0);
    CHECK(of_evaluation == 0);
}

TEST_CASE("engine: the loss falls on a batch that repeats") {
    const auto engine = make_engine();
    const counting_batch batch{2, 16};
    const double first = engine->step(batch.view(), settings).loss;
    for (int step = 0; step < 20; ++step) engine->step(batch.view(), settings);
    CHECK(engine->evaluate(batch.view(), settings).loss < 0.9 * first);
    CHECK(engine->steps_done() == 21);
}

TEST_CASE("engine: gradients that are not finite move nothing") {
    const auto engine = make_engine();
    const counting_batch batch{2, 16};
    engine->step(batch.view(), settings);
    const auto all = [](const planning::flat<float>& numbers) {
        return std::vector<float>(numbers.data, numbers.data + numbers.count);
    };
    auto& memory = engine->memory();
    const auto weights = all(memory.weights), first = all(memory.first_moments), second = all(memory.second_moments);
    for (float* broken : {memory.weight_views.head.data, memory.weight_views.embedding.data}) {
        for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
            const float held = *broken;
            *broken = value;
            const auto seen = engine->step(batch.view(), settings);
            *broken = held;
            CHECK(!std::isfinite(seen.gradient_norm));
            CHECK(engine->steps_done() == 1);
            CHECK(all(memory.weights) == weights);
            CHECK(all(memory.first_moments) == first);
            CHECK(all(memory.second_moments) == second);
        }
    }
    CHECK(std::isfinite(engine->step(batch.view(), settings).gradient_norm));
}

TEST_CASE("engine: batches outside the recipe are refused by place") {
    const auto engine = make_engine();
    counting_batch batch{2, 16};
    const auto refused = [&](const train::batch_view& b, const std::string& part) {
        const std::string said = error_of([&] { engine->step(b, settings); });
        INFO(said);
        CHECK(has(said, part));
    };
    const counting_batch longer{1, 17};
    refused(longer.view(), "1 sequences of 17 tokens, expected at least 1 sequence of 3 to 16 tokens");
    refused({0, 16, batch.tokens.data(), batch.targets.data()}, "0 sequences");
    refused({2, 2, batch.tokens.data(), batch.targets.data()}, "2 sequences of 2 tokens");
    batch.tokens[19] = 50;
    refused(batch.view(), "token 3 of sequence 1 is 50, expected an id in [0, 50)");
    batch.tokens[19] = 0;
    batch.targets[4] = -1;
    refused(batch.view(), "target 4 of sequence 0 is -1, expected an id in [0, 50) or -100");
    batch.targets[4] = train::ignored;
    std::vector<std::int32_t> positions(32, 0), starts(32, 0);
    positions[31] = 32;
    auto view = batch.view();
    view.positions = positions.data();
    refused(view, "position 15 of sequence 1 is 32, expected one in [0, 32)");
    view.positions = nullptr;
    starts[20] = 5;
    view.starts = starts.data();
    refused(view, "the start of token 4 of sequence 1 is 5");
    CHECK(engine->steps_done() == 0);
}

TEST_CASE("engine: a batch whose targets are all ignored has no loss and no gradient") {
    const auto engine = make_engine();
    counting_batch batch{2, 16};
    batch.targets.assign(batch.targets.size(), train::ignored);
    const auto seen = engine->step(batch.view(), {.learning_rate = 0, .balance_alpha = 0});
    CHECK(seen.loss == 0);
    CHECK(seen.gradient_norm == 0);
    CHECK(seen.targets == 0);
}

}  // namespace fathom::test
