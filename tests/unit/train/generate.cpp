// Generation from caches against the whole forward, and what sampling draws.
#include <fathom/train/generate.hpp>

#include <cstdint>
#include <fathom/models/released.hpp>
#include <map>
#include <string>
#include <vector>

#include "../../parity/described_models.hpp"
#include "../../parity/oracle.hpp"
#include "../scratch_folder.hpp"

namespace fathom {
namespace {

// --- the cache
static_assert(models::cache_bytes_per_token(models::latent_family::transformer<bf16>(released::v3::config())) ==
              70'272);
static_assert(models::cache_bytes_per_token(models::latent_family::transformer<bf16>(released::v2::config())) ==
              69'120);
static_assert(models::cache_bytes_per_token(models::latent_family::transformer<bf16>(released::v2_lite::config())) ==
              31'104);
// Grouped queries remember 8 keys and values of 128 numbers in each of 95 layers.
static_assert(models::cache_bytes_per_token(models::grouped_query_family::transformer<bf16>(
                  released::llm_67b::config())) == 95 * 2 * 8 * 128 * 2);

// What generation takes is known before: beside caches of 4,096 tokens little more than scratch and logits.
using lite = decltype(models::latent_family::transformer<bf16>(released::v2_lite::config()));
static_assert(train::generator<train::engine<lite>>::bytes(
                  models::latent_family::transformer<bf16>(released::v2_lite::config()), 1, 4'096, 2) -
                  4'096 * 31'104 <
              64_MiB);

template <class Model, class T> auto model_of() { return Model::family::template transformer<T>(Model::config()); }

/// An engine with the stored weights of a case; one that only reads them has no room for a batch.
template <class Model, class T> auto engine_of(const std::string& name, bool whole_forward) {
    const auto model = model_of<Model, T>();
    const planning::rank_shape shape{
        .batch = whole_forward ? nn::extents{2, 17} : nn::extents{1, 1 + model.of.num_nextn_predict_layers},
        .workers = 2,
        .trains = false};
    auto engine = std::make_unique<train::engine<std::remove_cvref_t<decltype(model)>>>(
        model, shape, planning::lower(model, shape).bytes, optim::adamw_facts{});
    train::load_pretrained(*engine, parity::path("oracle/" + name));
    return engine;
}

/// Logits of every position of the stored inputs by the whole forward.
template <class T> std::vector<T> whole_logits(auto& engine, const std::vector<std::int32_t>& ids, integer length) {
    const std::vector<std::int32_t> targets(ids.size(), 0);
    engine.evaluate({static_cast<integer>(ids.size()) / length, length, ids.data(), targets.data()}, {});
    const auto& normed = engine.memory().saved.normed;
    const matrix<T> head = engine.memory().weight_views.head;
    std::vector<T> logits(static_cast<std::size_t>(normed.rows * head.rows));
    ops::product(engine.queue(), matrix<T>{logits.data(), normed.rows, head.rows}, matrix<const T>{normed},
                 matrix<const T>{head});
    return logits;
}

template <class A, class B> double apart(std::span<const A> found, const B* expected) {
    double most = 0, difference = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
        most = std::max(most, std::abs(static_cast<double>(expected[i])));
        const double d = std::abs(static_cast<double>(found[i]) - static_cast<double>(expected[i]));
        difference = std::isnan(d) ? INFINITY : std::max(difference, d);
    }
    return difference / most;
}

template <class Model, class T> void same_logits(const std::string& name, double bound) {
    INFO(name << " in " << number_name<T>);
    const safetensors::file io{parity::path("oracle/" + name + "/io.safetensors")};
    const auto ids = parity::integers(io, "input_ids");
    const integer length = io.at("input_ids").shape[1], texts = static_cast<integer>(ids.size()) / length;
    auto whole = engine_of<Model, T>(name, true);
    const std::vector<T> expected = whole_logits<T>(*whole, ids, length);
    auto engine = engine_of<Model, T>(name, false);
    const integer vocabulary = engine->model().of.vocab_size;
    train::generator writer{*engine, texts, length};
    CHECK(writer.arena_bytes() == writer.bytes(engine->model(), texts, length, 2));
    const auto token = [&](integer text, integer at) {
        return std::span{ids}.subspan(static_cast<std::size_t>(text * length + at));
    };
    const auto wanted = [&](integer text, integer at) { return expected.data() + (text * length + at) * vocabulary; };
    for (integer at = 0; at < length; ++at)
        for (integer text = 0; text < texts; ++text)
            CHECK(apart(writer.append(token(text, at).first(1), text), wanted(text, at)) <= bound);
    // The whole prompt at once, and in two pieces.
    const auto n = static_cast<std::size_t>(length);
    writer.clear();
    CHECK(apart(writer.append(token(0, 0).first(n)), wanted(0, length - 1)) <= bound);
    writer.clear();
    writer.append(token(0, 0).first(5));
    CHECK(apart(writer.append(token(0, 5).first(n - 5)), wanted(0, length - 1)) <= bound);
    CHECK(writer.length() == length);
}

#define CACHED_EQUALS_WHOLE(name)                                    \
    TEST_CASE("generate: cached logits are the forward's: " #name) { \
        same_logits<described::name, double>(#name, 1e-10);          \
        same_logits<described::name, float>(#name, 1e-4);            \
    }

CACHED_EQUALS_WHOLE(v3_plain)
CACHED_EQUALS_WHOLE(v3_qlora_bias_eps)
CACHED_EQUALS_WHOLE(v3_switches)
CACHED_EQUALS_WHOLE(v3_yarn)
CACHED_EQUALS_WHOLE(v3_mtp)
CACHED_EQUALS_WHOLE(v2lite_greedy)
CACHED_EQUALS_WHOLE(v2_group_limited)
CACHED_EQUALS_WHOLE(llama_gqa)
CACHED_EQUALS_WHOLE(llama_linear_rope_tied)

TEST_CASE("generate: bf16 stays as near as its numbers are") {
    same_logits<described::v3_plain, bf16>("v3_plain", 5e-2);
}

TEST_CASE("generate: a prompt longer than a piece gives what its tokens give one by one") {
    auto engine = engine_of<described::v3_plain, double>("v3_plain", false);
    std::vector<std::int32_t> prompt;
    for (std::int32_t i = 0; i < 150; ++i) prompt.push_back(i * 37 % 101);
    train::generator at_once{*engine, 1, 150}, one_by_one{*engine, 1, 150};
    std::span<const double> last;
    for (const std::int32_t& token : prompt) last = one_by_one.append({&token, 1});
    CHECK(apart(at_once.append(prompt), last.data()) <= 1e-12);
}

TEST_CASE("generate: temperature 0 is the most likely token of the whole forward") {
    auto whole = engine_of<described::llama_gqa, double>("llama_gqa", true);
    const integer vocabulary = whole->model().of.vocab_size;
    std::vector<std::int32_t> text{5, 80, 41};
    while (text.size() < 17) {
        const auto logits = whole_logits<double>(*whole, text, static_cast<integer>(text.size()));
        const auto last = logits.end() - vocabulary;
        text.push_back(static_cast<std::int32_t>(std::max_element(last, logits.end()) - last));
    }
    train::generator writer{*whole, 2, 17};
    const auto added = writer.generate({5, 80, 41}, {.how = {.temperature = 0}});
    CHECK(added == std::vector<std::int32_t>(text.begin() + 3, text.end()));
    SUBCASE("only ids below the vocabulary are drawn") {
        for (const std::int32_t id :
             writer.generate({5, 80, 41}, {.most_tokens = 12, .how = {.temperature = 5}, .vocab_size = 7}))
            CHECK(id < 7);
        CHECK(writer.generate({5, 80, 41}, {.how = {.temperature = 0}, .vocab_size = 1'000}) == added);
    }
    SUBCASE("most_tokens and end tokens end it") {
        CHECK(writer.generate({5, 80, 41}, {.most_tokens = 4, .how = {.temperature = 0}}).size() == 4);
        CHECK(writer.generate({5, 80, 41}, {.most_tokens = 0}).empty());
        const auto ended = writer.generate({5, 80, 41}, {.how = {.temperature = 0}, .end_tokens = {96, added[2]}});
        CHECK(ended.back() == added[2]);
        CHECK(ended.size() <= 3);
        CHECK(writer.generate(std::vector<std::int32_t>(17, 1), {}).empty());
    }
}

TEST_CASE("generate: a seed fixes the texts, however many there are") {
    auto engine = engine_of<described::v2_group_limited, double>("v2_group_limited", false);
    train::generator writer{*engine, 3, 40};
    const std::vector<std::vector<std::int32_t>> prompts{{1, 2, 3}, {50}, {7, 7, 7, 7, 7}};
    const train::generation_options options{.most_tokens = 30, .how = {.temperature = 1.2, .top_p = 0.9, .seed = 4}};
    std::map<integer, std::vector<std::int32_t>> seen;
    const auto texts =
        writer.generate(prompts, options, [&](integer text, std::int32_t token) { seen[text].push_back(token); });
    CHECK(writer.generate(prompts, options) == texts);
    CHECK(writer.generate(prompts[0], options) == texts[0]);
    for (std::size_t i = 0; i < 3; ++i) {
        CHECK(texts[i].size() == 30);
        CHECK(seen[static_cast<integer>(i)] == texts[i]);
    }
    auto other = options;
    other.how.seed = 5;
    CHECK(writer.generate(prompts, other) != texts);
    // One text has one stream of random numbers, another text another one.
    const std::vector<std::vector<std::int32_t>> twice{{1, 2, 3}, {1, 2, 3}};
    const auto two = writer.generate(twice, options);
    CHECK(two[0] == texts[0]);
    CHECK(two[1] != two[0]);
}

TEST_CASE("generate: what does not fit is refused") {
    auto engine = engine_of<described::llama_gqa, float>("llama_gqa", false);
    CHECK(test::message_of([&] {
              train::generator{*engine, 1, 129};
          }) ==
          "generate: found 1 texts of at most 129 tokens, expected at least 1 text of 1 to 128 "
          "(max_position_embeddings)");
    train::generator writer{*engine, 1, 8};
    const std::vector<std::int32_t> nine(9, 1), foreign{3, 97};
    CHECK(test::message_of([&] { writer.append(nine); }) ==
          "generate: found 9 tokens for a text of 0, expected 1 to 8 (of 8 in all)");
    CHECK(test::message_of([&] { writer.append({}); }).find("found 0 tokens") != std::string::npos);
    CHECK(test::message_of([&] { writer.append(foreign); }) ==
          "generate: token 1 of the prompt is 97, expected an id in [0, 97)");
    CHECK(writer.length() == 0);
    CHECK(test::message_of([&] { writer.generate(std::vector<std::vector<std::int32_t>>(2, {1}), {}); }) ==
          "generate: found 2 prompts, expected at most 1");
    CHECK(test::message_of([&] { writer.generate({1}, {.how = {.temperature = -1}}); }).find("temperature -1") !=
          std::string::npos);
    CHECK(test::message_of([&] { writer.generate({1}, {.how = {.top_p = 0}}); }).find("top_p 0") != std::string::npos);
}

}  // namespace
}  // namespace fathom
