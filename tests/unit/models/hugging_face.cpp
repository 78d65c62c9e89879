// config.json files in and out: those of transformers 5, those of DeepSeek's releases, and those that are wrong.
#include <fathom/models/hugging_face.hpp>

#include <doctest/doctest.h>

#include <cstdlib>
#include <fathom/models/released.hpp>
#include <string>
#include <vector>

namespace {

using namespace fathom;

json::value stored(const std::string& name) {
    const char* root = std::getenv("FATHOM_SOURCE_ROOT");
    return json::parse_file(
        text_of(std::string_view{root != nullptr ? root : "."}, "/tests/oracle/", name, "/config.json"));
}

models::model_config read(const json::value& root) { return models::config_from_json(root, "config.json"); }

/// The message of the error that reading or comparing gives.
template <class Work> std::string complaint(const Work& work) {
    try {
        work();
    } catch (const error& wrong) {
        return wrong.what();
    }
    return "no error";
}
/// What is said of a stored config with one key changed, or left out when `to` is the string "(left out)".
std::string complaint_with(const std::string& name, std::string_view key, const json::value& to) {
    const json::value whole = stored(name);
    json::value root;
    for (const auto& [member, held] : whole.members())
        if (member != key) root.set(member, held);
    if (!to.is_string() || to.as_string() != "(left out)") root.set(key, to);
    return complaint([&] { (void)read(root); });
}
bool says(const std::string& text, std::string_view part) {
    const bool found = text.find(part) != text.npos;
    if (!found) MESSAGE(text);
    return found;
}

bool same(const json::value& a, const json::value& b) {
    if (a.is_number() && b.is_number()) return a.as_number() == b.as_number();
    if (!a.is_object() || !b.is_object()) return json::write(a) == json::write(b);
    for (const auto& [key, member] : a.members())
        if (const json::value* other = b.find(key); other == nullptr || !same(member, *other)) return false;
    return a.size() == b.size();
}

}  // namespace

TEST_CASE("what is written is what transformers 5.24 wrote") {
    for (const char* name : {"llama_gqa", "llama_linear_rope_tied", "v2_group_limited", "v2lite_greedy", "v3_mtp",
                             "v3_plain", "v3_qlora_bias_eps", "v3_switches", "v3_yarn"}) {
        CAPTURE(name);
        const json::value theirs = stored(name);
        const json::value ours = models::config_to_json(
            read(theirs),
            {.bos_token_id = theirs.at("bos_token_id").as_int(), .eos_token_id = theirs.at("eos_token_id").as_int()});
        for (const auto& [key, held] : theirs.members()) {
            if (key == "transformers_version" || key == "output_router_logits" || key == "pretraining_tp") continue;
            CAPTURE(key);
            REQUIRE(ours.find(key) != nullptr);
            CHECK(same(ours.at(key), held));
        }
        CHECK_NOTHROW(models::check_same(read(theirs), read(json::parse(json::write(ours, 2), "ours")), "ours"));
    }
}

TEST_CASE("released models go to config.json and back") {
    const auto there_and_back = [](const models::model_config& c) {
        const auto back = read(json::parse(json::write(models::config_to_json(c, {.dtype = "bfloat16"})), "it"));
        models::check_same(c, back, "it");
        CHECK(back.initializer_range == c.initializer_range);
        CHECK(back.num_nextn_predict_layers == c.num_nextn_predict_layers);
    };
    CHECK_NOTHROW(there_and_back(released::llm_7b::config()));
    CHECK_NOTHROW(there_and_back(released::llm_67b::config()));
    CHECK_NOTHROW(there_and_back(released::moe_16b::config()));
    CHECK_NOTHROW(there_and_back(released::v2_lite::config()));
    CHECK_NOTHROW(there_and_back(released::v2::config()));
    CHECK_NOTHROW(there_and_back(released::v3::config()));
}

TEST_CASE("a config.json as DeepSeek-V3 was released with it") {
    const json::value v3 = json::parse(R"({
  "architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 0, "eos_token_id": 1, "ep_size": 1, "first_k_dense_replace": 3, "hidden_act": "silu",
  "hidden_size": 7168, "initializer_range": 0.02, "intermediate_size": 18432, "kv_lora_rank": 512,
  "max_position_embeddings": 163840, "model_type": "deepseek_v3", "moe_intermediate_size": 2048,
  "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true,
  "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128,
  "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
  "quantization_config": {"fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]},
  "rms_norm_eps": 1e-06,
  "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
                   "original_max_position_embeddings": 4096, "type": "yarn"},
  "rope_theta": 10000, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "tie_word_embeddings": false,
  "topk_group": 4, "topk_method": "noaux_tc", "torch_dtype": "bfloat16", "use_cache": true, "v_head_dim": 128,
  "vocab_size": 129280})",
                                       "v3.json");
    CHECK_NOTHROW(models::check_same(released::v3::config(), read(v3), "v3.json"));
    CHECK(read(v3).num_nextn_predict_layers == 1);
    json::value plain = v3;
    plain.set("rope_scaling", nullptr);
    CHECK(read(plain).rope.kind == ops::rope_facts::scaling::none);
    plain.set("rope_theta", 5e5);
    CHECK(read(plain).rope.theta == 5e5);
}

TEST_CASE("a released MoE-16B and V2-Lite differ in what they leave out") {
    json::value moe = models::config_to_json(released::moe_16b::config());
    CHECK(moe.at("model_type").as_string() == "deepseek");
    CHECK(moe.find("n_group") == nullptr);
    json::value lite = models::config_to_json(released::v2_lite::config());
    CHECK(lite.at("q_lora_rank").is_null());
    CHECK(lite.at("topk_method").as_string() == "greedy");
    lite.set("n_group", 8);  // groups that a greedy choice does not look at
    lite.set("topk_group", 3);
    CHECK(read(lite).n_group == 1);
}

TEST_CASE("keys that are missing, of the wrong kind or without sense are named") {
    CHECK(says(complaint_with("v3_plain", "hidden_size", "(left out)"), "config.json: found no key \"hidden_size\""));
    CHECK(says(complaint_with("v3_plain", "hidden_size", "wide"), "hidden_size: found the string \"wide\", expected"));
    CHECK(says(complaint_with("v3_plain", "hidden_size", 0), "hidden_size: found the integer 0, expected"));
    CHECK(says(complaint_with("v3_plain", "hidden_size", 32.5), "hidden_size: found the number 32.5, expected"));
    CHECK(says(complaint_with("v3_plain", "hidden_size", std::int64_t{1} << 40), "expected an integer from 1 to 2^31"));
    CHECK(says(complaint_with("v3_plain", "kv_lora_rank", nullptr), "kv_lora_rank: found null, expected an integer"));
    CHECK(says(complaint_with("v3_plain", "q_lora_rank", "(left out)"), "found no key \"q_lora_rank\""));
    CHECK(complaint_with("v3_plain", "q_lora_rank", nullptr) == "no error");
    CHECK(says(complaint_with("v3_plain", "rms_norm_eps", 0), "rms_norm_eps: found the integer 0, expected a number"));
    CHECK(says(complaint_with("v3_plain", "norm_topk_prob", 1), "found the integer 1, expected true or false"));
    CHECK(says(complaint_with("v3_plain", "first_k_dense_replace", 4), "found 4, expected at most 3, the layers"));
    CHECK(says(complaint_with("v3_plain", "qk_rope_head_dim", 7), "found 7, expected an even number"));
    CHECK(says(complaint_with("v3_plain", "num_experts_per_tok", 9), "found 9, expected at most 8, the routed"));
    CHECK(says(complaint_with("v3_plain", "n_routed_experts", 0), "n_routed_experts: found 0, expected 1 or more"));
    CHECK(says(complaint_with("v3_plain", "n_group", 3), "n_group: found 3, expected a divisor of 8"));
    CHECK(says(complaint_with("v3_plain", "n_group", "(left out)"), "found no key \"n_group\""));
    CHECK(says(complaint_with("v3_plain", "topk_group", 5), "topk_group: found 5, expected at most 4"));
    CHECK(
        says(complaint_with("v3_plain", "num_experts_per_tok", 5), "at most the experts of the groups that are kept"));
    json::value lone = stored("v3_plain");
    lone.set("n_group", 8);
    lone.set("num_experts_per_tok", 2);
    CHECK(says(complaint([&] { (void)read(lone); }), "n_group: found 8, expected two experts or more"));
    CHECK(says(complaint_with("v3_plain", "num_nextn_predict_layers", 9), "found 9, expected at most 8"));
    CHECK(says(complaint_with("v3_plain", "num_key_value_heads", 2), "found the integer 2, expected 4, as"));
    CHECK(says(complaint_with("llama_gqa", "num_key_value_heads", 4), "found 4, expected a divisor of 6"));
    CHECK(says(complaint_with("llama_gqa", "head_dim", 7), "head_dim: found 7, expected an even number"));
    CHECK(complaint_with("llama_gqa", "head_dim", "(left out)") == "no error");
    CHECK(says(complaint([] { (void)read(json::parse("[]", "list.json")); }), "list.json:1:1: found an array"));
}

TEST_CASE("what this version does not have is refused by name") {
    for (const char* name : {"v32_dsa", "v4_mixed"})
        CHECK(says(complaint([&] { (void)read(stored(name)); }), "this version does not know V3.2 and V4"));
    CHECK(says(complaint_with("v3_plain", "model_type", "gpt2"), "found the string \"gpt2\", expected one of llama,"));
    CHECK(says(complaint_with("v3_plain", "model_type", "(left out)"), "found no key \"model_type\""));
    CHECK(says(complaint_with("v3_plain", "hidden_act", "gelu"), "hidden_act: found the string \"gelu\", expected"));
    CHECK(says(complaint_with("v3_plain", "attention_dropout", 0.1), "attention_dropout: found the number 0.1"));
    CHECK(says(complaint_with("llama_gqa", "mlp_bias", true), "mlp_bias: found true, expected false"));
    CHECK(says(complaint_with("v3_plain", "moe_layer_freq", 2), "moe_layer_freq: found the integer 2, expected 1"));
    CHECK(says(complaint_with("v3_plain", "scoring_func", "softmax"), "scoring_func: found the string \"softmax\""));
    CHECK(says(complaint_with("v2_group_limited", "topk_method", "noaux_tc"), "expected greedy or group_limited"));
    const auto rope = [](json::object settings) {
        return complaint_with("v3_plain", "rope_parameters", std::move(settings));
    };
    CHECK(says(rope({{"rope_type", "dynamic"}}), "rope_type: found the string \"dynamic\", expected one of default"));
    CHECK(says(rope({{"rope_theta", 1e4}}), "without \"rope_type\""));
    CHECK(says(rope({{"rope_type", "linear"}}), "found linear scaling without \"factor\""));
    CHECK(says(rope({{"rope_type", "yarn"}, {"factor", 4}}), "without \"original_max_position_embeddings\""));
    CHECK(says(rope({{"rope_type", "yarn"},
                     {"factor", 4},
                     {"original_max_position_embeddings", 64},
                     {"attention_factor", 1.5}}),
               "attention_factor: found the number 1.5"));
    CHECK(says(rope({{"rope_type", "yarn"}, {"factor", -4}, {"original_max_position_embeddings", 64}}),
               "factor: found the integer -4, expected a number above 0"));
}

TEST_CASE("every key that disagrees is named with both values") {
    const models::model_config here = read(stored("v3_yarn"));
    models::model_config there = here;
    CHECK_NOTHROW(models::check_same(here, there, "F"));
    there.hidden_size = 64;
    there.norm_topk_prob = false;
    there.rope.theta = 1e6;
    there.rope.mscale = 0;
    CHECK(complaint([&] { models::check_same(here, there, "F"); }) ==
          "F: hidden_size: found 64, the described model has 32; norm_topk_prob: found false, the described model has "
          "true; rope_theta: found 1e+06, the described model has 500; mscale: found 0, the described model has 1");
    there = here;
    there.initializer_range = 1;
    there.num_nextn_predict_layers = 2;
    CHECK_NOTHROW(models::check_same(here, there, "F"));
    there.type = models::family::deepseek_v2;
    CHECK(says(complaint([&] { models::check_same(here, there, "F"); }), "model_type: found deepseek_v2"));
}
