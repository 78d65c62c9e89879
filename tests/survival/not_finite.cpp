// Numbers that are not finite, planted where they may arise: the finding names the place, the batch comes back.
#include <doctest/doctest.h>

#include <cstdint>
#include <fathom/train/diagnose.hpp>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "../parity/described_models.hpp"
#include "../unit/scratch_folder.hpp"

namespace fathom {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
constexpr train::step_settings settings{.learning_rate = 1e-3};

/// Two micro-batches of two sequences; the first token that is 90 stands in the second one.
struct tokens {
    std::vector<std::int32_t> ids, targets;
    tokens() {
        for (std::int32_t i = 0; i < 4 * 17; ++i) {
            ids.push_back(i == 2 * 17 + 20 ? 90 : i * 31 % 89);
            targets.push_back(i % 17 == 16 ? train::ignored : (i + 1) * 31 % 89);
        }
    }
    [[nodiscard]] train::batch_view view() const { return {4, 17, ids.data(), targets.data()}; }
};

template <class Model> struct trainer {
    static constexpr auto model_of(const nn::recomputation& again) {
        return Model::family::template transformer<float>(Model::config(), again);
    }
    using transformer = decltype(model_of({}));
    tokens batch;
    std::unique_ptr<train::engine<transformer>> engine;

    explicit trainer(const nn::recomputation& again = {}) {
        const auto model = model_of(again);
        const planning::rank_shape shape{.batch = {2, 17}, .workers = 2};
        engine = std::make_unique<train::engine<transformer>>(model, shape, planning::lower(model, shape).bytes,
                                                              optim::adamw_facts{});
        engine->initialise(5);
        engine->set_steps_done(40);
    }
    /// The storage of the weight of that name (without the number of an expert).
    matrix<float> weight(const std::string& name) {
        matrix<float> found;
        engine->each_part([&](const auto& p, const nn::part& part) {
            if (p.name == name) found = p.value.rows_at(part.first, part.rows);
        });
        REQUIRE(!found.empty());
        return found;
    }
    train::finding find() {
        const auto seen = engine->step(batch.view(), settings);
        CHECK(!(std::isfinite(seen.loss) && std::isfinite(seen.gradient_norm)));
        CHECK(engine->steps_done() == 40);
        const auto found = train::diagnose(*engine, batch.view(), settings);
        REQUIRE(found.has_value());
        return *found;
    }
};

void check_start(const std::string& message, const std::string& expected) {
    CHECK(message.substr(0, expected.size()) == expected);
}

using v3 = trainer<described::v3_mtp>;  // layer 0 is dense, 1 and 2 have experts, one module of prediction

TEST_CASE("a NaN in a weight is found where it first shows") {
    v3 of;
    SUBCASE("embedding") {
        of.weight("model.embed_tokens.weight")(90, 7) = nan;
        const auto f = of.find();
        CHECK(describe(f) ==
              "step 41, micro-batch 1: forward of the embedding, lookup: embedded[20, 7] is nan; the weight "
              "model.embed_tokens.weight[90, 7] is not finite itself");
        CHECK((f.step == 41 && f.micro_batch == 1 && f.layer == -1 && f.row == 20 && f.column == 7 && !f.backward));
    }
    SUBCASE("norm of a layer") {
        of.weight("model.layers.1.input_layernorm.weight").data[3] = infinity;
        const auto f = of.find();
        check_start(describe(f),
                    "step 41, micro-batch 0: forward of layer 1 (experts), input norm: attention_in[0, 3] is ");
        CHECK(f.layer == 1);
    }
    SUBCASE("query projection") {
        of.weight("model.layers.0.self_attn.q_b_proj.weight")(2, 5) = nan;
        check_start(describe(of.find()),
                    "step 41, micro-batch 0: forward of layer 0 (feed-forward), q_b_proj and rotation: q[0, 2] is nan");
    }
    SUBCASE("output projection") {
        of.weight("model.layers.2.self_attn.o_proj.weight")(6, 0) = nan;
        check_start(describe(of.find()),
                    "step 41, micro-batch 0: forward of layer 2 (experts), o_proj and residual: mid[0, 6] is nan");
    }
    SUBCASE("router") {
        of.weight("model.layers.2.mlp.gate.weight")(4, 0) = nan;
        check_start(describe(of.find()),
                    "step 41, micro-batch 0: forward of layer 2 (experts), router: scores[0, 4] is nan");
    }
    SUBCASE("expert") {
        const auto up = of.weight("model.layers.1.mlp.experts.*.up_proj.weight");
        up.row(2 * 2 * 8)[1] = nan;  // row 0 of up_proj of expert 2: gate and up of an expert are 8 rows each
        const auto f = of.find();
        CHECK(f.layer == 1);
        CHECK(f.tensor == "gate_up of expert 2");
        CHECK(f.column == 8);
        CHECK(f.weight == "model.layers.1.mlp.experts.2.up_proj.weight[0, 1]");
        // The token is one that expert 2 has seen.
        const auto& ids = std::get<1>(of.engine->memory().saved.blocks)[0].in.mlp.ids;
        of.engine->evaluate({2, 17, of.batch.ids.data(), of.batch.targets.data()}, settings);
        bool chosen = false;
        for (integer j = 0; j < ids.width; ++j) chosen = chosen || ids(f.row, j) == 2;
        CHECK(chosen);
    }
    SUBCASE("dense feed-forward") {
        of.weight("model.layers.0.mlp.down_proj.weight")(9, 1) = nan;
        check_start(
            describe(of.find()),
            "step 41, micro-batch 0: forward of layer 0 (feed-forward), down_proj and residual: y[0, 9] is nan");
    }
    SUBCASE("final norm") {
        of.weight("model.norm.weight").data[11] = nan;
        check_start(describe(of.find()),
                    "step 41, micro-batch 0: forward of the final norm, norm: normed[0, 11] is nan");
    }
    SUBCASE("head") {
        of.weight("lm_head.weight")(50, 0) = nan;
        check_start(describe(of.find()),
                    "step 41, micro-batch 0: forward of the head, product with the head: logits[0, 50] is nan");
    }
    SUBCASE("multi-token prediction") {
        of.weight("model.layers.3.eh_proj.weight")(5, 5) = nan;
        check_start(describe(of.find()),
                    "step 41, micro-batch 0: forward of the multi-token prediction 1, eh_proj: x[0, 5] is nan");
    }
}

TEST_CASE("the finding does not depend on what is recomputed") {
    for (const nn::recomputation& again : {nn::recomputation{.norms = true, .up_projections = true, .swiglu = true},
                                           nn::recomputation{.blocks = true}}) {
        v3 of{again};
        of.weight("model.layers.1.self_attn.kv_b_proj.weight")(3, 0) = nan;
        check_start(describe(of.find()),
                    "step 41, micro-batch 0: forward of layer 1 (experts), kv_b_proj: kv[0, 3] is nan");
    }
}

TEST_CASE("what overflows in backward only is found there") {
    SUBCASE("a layer") {
        // The activations of layer 0 are 0, so weights at the end of float do no harm forward.
        v3 of;
        const auto gate = of.weight("model.layers.0.mlp.gate_proj.weight");
        std::fill_n(gate.data, gate.size(), 0.0f);
        const auto down = of.weight("model.layers.0.mlp.down_proj.weight");
        std::fill_n(down.data, down.size(), 3e38f);
        const auto head = of.weight("lm_head.weight");
        for (integer i = 0; i < head.size(); ++i) head.data[i] *= 1e4f;
        const auto f = of.find();
        CHECK(f.backward);
        CHECK(f.layer == 0);
        CHECK(f.operation == "gradient of a weight");
        CHECK(f.tensor == "gradient of model.layers.0.mlp.gate_proj.weight");
        CHECK((f.row == 0 && f.column == 0));
        CHECK(f.weight.empty());
    }
    SUBCASE("the head") {
        trainer<described::llama_gqa> of;
        const train::step_settings hard{.learning_rate = 1e-3, .z_loss = 1e43};
        const auto seen = of.engine->step(of.batch.view(), hard);
        CHECK(std::isfinite(seen.loss));
        const auto f = train::diagnose(*of.engine, of.batch.view(), hard);
        REQUIRE(f.has_value());
        CHECK(
            describe(*f).starts_with("step 41, micro-batch 0: backward of the head, cross-entropy and product with "
                                     "the head: gradient of normed[0, 0] is "));
    }
}

TEST_CASE("grouped queries and tied embeddings are looked at, too") {
    trainer<described::llama_linear_rope_tied> of;
    of.weight("model.layers.2.self_attn.k_proj.weight")(1, 0) = nan;
    check_start(
        describe(of.find()),
        "step 41, micro-batch 0: forward of layer 2 (feed-forward), projections of the input and rotation: qkv[0, 49] "
        "is nan");
}

TEST_CASE("a step in which all is finite gives no finding, and diagnosing leaves no trace") {
    v3 of, other;
    CHECK(!train::diagnose(*of.engine, of.batch.view(), settings));
    const auto seen = of.engine->step(of.batch.view(), settings);
    CHECK(seen.loss == other.engine->step(of.batch.view(), settings).loss);
    CHECK(std::equal(of.engine->memory().weights.data,
                     of.engine->memory().weights.data + of.engine->memory().weights.count,
                     other.engine->memory().weights.data));
    train::require_finite(*of.engine, of.batch.view(), settings, seen, "nowhere/batch.safetensors");
}

TEST_CASE("a run stops with the place and a batch that reproduces it") {
    const test::scratch_folder folder;
    const std::string path = folder / "bad.safetensors";
    v3 of;
    of.weight("model.layers.1.mlp.gate.weight")(0, 0) = nan;
    const auto seen = of.engine->step(of.batch.view(), settings);
    const std::string message =
        test::message_of([&] { train::require_finite(*of.engine, of.batch.view(), settings, seen, path); });
    check_start(message, "step 41, micro-batch 0: forward of layer 1 (experts), router: scores[0, 0] is nan");
    CHECK(message.ends_with("; the weights were not moved, the batch is saved as " + path));
    const train::saved_batch again = train::load_batch(path);
    CHECK(again.tokens == of.batch.ids);
    CHECK(again.targets == of.batch.targets);
    CHECK((again.positions.empty() && again.view().starts == nullptr));
    const auto found = train::diagnose(*of.engine, again.view(), settings);
    REQUIRE(found.has_value());
    check_start(message, describe(*found));
}

TEST_CASE("a batch comes back with its documents, and a file that is none is refused") {
    const test::scratch_folder folder;
    const std::string path = folder / "batch.safetensors";
    std::vector<std::int32_t> ids{1, 2, 3, 4, 5, 6}, targets{2, 3, -100, 5, 6, -100}, places{0, 1, 0, 0, 1, 2},
        starts{0, 0, 2, 0, 0, 0};
    train::save_batch(path, {2, 3, ids.data(), targets.data(), places.data(), starts.data()});
    const train::saved_batch again = train::load_batch(path);
    CHECK((again.sequences == 2 && again.length == 3));
    CHECK((again.tokens == ids && again.targets == targets && again.positions == places && again.starts == starts));
    safetensors::write(path, std::vector<safetensors::stored_tensor>{
                                 {"tokens", safetensors::dtype::i32, {6}, std::as_bytes(std::span{ids}), {}}});
    CHECK(test::message_of([&] { train::load_batch(path); }) ==
          path + ": tensor \"tokens\": found shape [6], expected [sequences, length]");
}

}  // namespace
}  // namespace fathom
