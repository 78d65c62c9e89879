// Between a described model and the config.json of a Hugging Face folder: read, write, compare; a file that says what
// this version cannot do is refused, never half understood.
#pragma once

#include <cstdint>
#include <fathom/core/error.hpp>
#include <fathom/core/json.hpp>
#include <fathom/models/detail/config_keys.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace fathom::models {

/// What a config.json says beside the model itself.
struct file_details {
    std::string_view dtype = "float32";  // of the stored weights, as PyTorch names it
    std::optional<integer> bos_token_id{};
    std::optional<integer> eos_token_id{};
};

namespace detail {

/// Reads one config.json; errors name the file, the place in it, what was found and what was expected.
class config_reader {
  public:
    config_reader(const json::value& root, std::string_view file) : root_(root), file_(file) {}

    [[nodiscard]] model_config read() {
        const family_facts& kind = family_of_file();
        config_ = kind.absent;
        config_.initializer_range = 0.02;  // what transformers assumes
        for (const size_key& key : size_keys)
            if (key.families & bit(kind.type)) read(key);
        for (const switch_key& key : switch_keys)
            if (const json::value* found = optional(key.name); found && key.families & bit(kind.type))
                config_.*key.member = found->as_bool();
        for (const real_key& key : real_keys)
            if (const json::value* found = optional(key.name); found && key.families & bit(kind.type))
                config_.*key.member = real(*found, key.name, key.may_be_zero ? 0 : smallest);
        config_.rope = read_rope();
        refuse_what_is_not_there();
        check_sense();
        return config_;
    }

  private:
    static constexpr double smallest = 1e-300;

    [[noreturn]] void stop(const char* key, const json::value& found, const std::string& expected) const {
        fail(found.place(), key, ": found ", found.description(), ", expected ", expected);
    }
    /// The value of a key, or nullptr where it is missing or null.
    [[nodiscard]] const json::value* optional(const char* key) const {
        const json::value* found = root_.find(key);
        return found != nullptr && !found->is_null() ? found : nullptr;
    }
    [[nodiscard]] const json::value& required(const char* key, const char* expected) const {
        if (const json::value* found = root_.find(key)) return *found;
        fail(file_, ": found no key \"", key, "\", expected ", expected);
    }
    [[nodiscard]] integer whole_number(const json::value& found, const char* key, integer least) const {
        constexpr integer most = integer{1} << 31;  // products of two sizes fit 64 bits
        if (!found.is_integer() || found.as_int() < least || found.as_int() > most)
            stop(key, found, text_of("an integer from ", least, " to 2^31"));
        return found.as_int();
    }
    [[nodiscard]] double real(const json::value& found, const char* key, double least) const {
        if (!found.is_number() || !(found.as_number() >= least))
            stop(key, found, least > 0 ? "a number above 0" : "a number of at least 0");
        return found.as_number();
    }

    [[nodiscard]] const family_facts& family_of_file() const {
        const json::value& found = required("model_type", "the model's family");
        const std::string& name = found.as_string();
        std::string known;
        for (const family_facts& kind : families) {
            if (name == kind.model_type) return kind;
            known += text_of(known.empty() ? "" : ", ", kind.model_type);
        }
        const bool later = name == "deepseek_v32" || name == "deepseek_v4";
        stop("model_type", found, text_of("one of ", known, later ? " (this version does not know V3.2 and V4)" : ""));
    }

    void read(const size_key& key) {
        const json::value* found = root_.find(key.name);
        if (key.given == presence::required || key.given == presence::nullable) {
            found = &required(key.name, key.given == presence::nullable ? "an integer or null" : "an integer");
            config_.*key.member =
                found->is_null() && key.given == presence::nullable ? 0 : whole_number(*found, key.name, key.least);
        } else if (found != nullptr && !found->is_null()) {
            config_.*key.member = whole_number(*found, key.name, key.least);
        }
    }

    /// transformers 5 writes `rope_parameters`; before, `rope_theta` stood beside a `rope_scaling` that could be null.
    [[nodiscard]] ops::rope_facts read_rope() const {
        rope facts;
        const json::value* said = optional("rope_parameters");
        const json::value* theta = said != nullptr ? said->find("rope_theta") : nullptr;
        if (said == nullptr) said = optional("rope_scaling");
        if (theta == nullptr) theta = optional("rope_theta");
        if (theta != nullptr) facts.theta = real(*theta, "rope_theta", 1);
        if (said == nullptr) return facts;
        const json::value* kind = said->find("rope_type");
        if (kind == nullptr) kind = said->find("type");
        if (kind == nullptr) fail(said->place(), "found rotary settings without \"rope_type\", expected it");
        const std::string& name = kind->as_string();
        if (name == "default") return facts;
        if (name != "linear" && name != "yarn") stop("rope_type", *kind, "one of default, linear, yarn");
        facts.kind = name == "yarn" ? rope::scaling::yarn : rope::scaling::linear;
        for (const rope_key& key : rope_keys) {
            const json::value* found = said->find(key.name);
            if (found == nullptr && key.required)
                fail(said->place(), "found ", name, " scaling without \"", key.name, "\", expected a number");
            if (found != nullptr && !found->is_null())
                facts.*key.member = real(*found, key.name, key.required ? smallest : 0);
            if (facts.kind == rope::scaling::linear) break;
        }
        if (facts.kind == rope::scaling::yarn) {
            const json::value* length = said->find(original_length);
            if (length == nullptr)
                fail(said->place(), "found yarn scaling without \"", original_length, "\", expected an integer");
            facts.original_max_position_embeddings = whole_number(*length, original_length, 1);
            if (const json::value* set = said->find("attention_factor"); set != nullptr && !set->is_null())
                stop("attention_factor", *set, "none: this version derives it from mscale and mscale_all_dim");
            if (const json::value* set = said->find("truncate"); set != nullptr && !set->as_bool())
                stop("truncate", *set, "true: this version rounds YaRN's range to whole pairs");
        }
        return facts;
    }

    /// Keys whose other values call for arithmetic that is not there.
    void refuse_what_is_not_there() {
        only_text("hidden_act", "silu");
        only_zero("attention_dropout");
        only_zero("mlp_bias");
        const unsigned kind = bit(config_.type);
        if (const json::value* every = optional("moe_layer_freq"); every && kind & sparse && every->as_int() != 1)
            stop("moe_layer_freq", *every, "1: this version has experts in every layer after the dense ones");
        if (kind & sparse) only_text("scoring_func", config_.type == family::deepseek_v3 ? "sigmoid" : "softmax");
        if (config_.type == family::deepseek_v3) only_text("topk_method", "noaux_tc");
        if (config_.type == family::deepseek_v2) {
            const json::value* method = optional("topk_method");
            const bool greedy = method == nullptr || method->as_string() == "greedy";
            if (!greedy && method->as_string() != "group_limited_greedy")
                stop("topk_method", *method, "greedy or group_limited_greedy");
            if (greedy) config_.n_group = config_.topk_group = 1;  // groups are there, but nobody looks at them
        }
        if (kind & latent)
            if (const json::value* heads = optional("num_key_value_heads");
                heads && heads->as_int() != config_.num_attention_heads)
                stop("num_key_value_heads", *heads, text_of(config_.num_attention_heads, ", as num_attention_heads"));
    }
    void only_text(const char* key, const char* text) const {
        if (const json::value* found = optional(key); found && found->as_string() != text)
            stop(key, *found, text_of('"', text, "\", the only one that this version has"));
    }
    void only_zero(const char* key) const {
        const json::value* found = optional(key);
        if (found && (found->is_bool() ? found->as_bool() : found->as_number() != 0))
            stop(key, *found, found->is_bool() ? "false, this version has none" : "0, this version has none");
    }

    /// What static rules ask of a description (models/rules.hpp), asked of a file.
    void check_sense() const {
        const model_config& c = config_;
        const auto ask = [&](bool holds, const char* key, integer found, const std::string& expected) {
            if (!holds) fail(file_, ": ", key, ": found ", found, ", expected ", expected);
        };
        ask(c.first_k_dense_replace <= c.num_hidden_layers, "first_k_dense_replace", c.first_k_dense_replace,
            text_of("at most ", c.num_hidden_layers, ", the layers"));
        if (c.latent()) {
            ask(c.qk_rope_head_dim % 2 == 0, "qk_rope_head_dim", c.qk_rope_head_dim, "an even number");
        } else {
            ask(c.num_attention_heads % c.key_value_heads() == 0, "num_key_value_heads", c.key_value_heads(),
                text_of("a divisor of ", c.num_attention_heads, ", the attention heads"));
            ask(c.head_dim > 0 || c.hidden_size % c.num_attention_heads == 0, "num_attention_heads",
                c.num_attention_heads, text_of("a divisor of ", c.hidden_size, ", the hidden size, or head_dim"));
            ask(c.width_of_head() % 2 == 0, "head_dim", c.width_of_head(), "an even number");
        }
        const bool any_experts = c.num_hidden_layers > c.first_k_dense_replace || c.num_nextn_predict_layers > 0;
        if (c.type == family::llama || !any_experts) return;
        ask(c.n_routed_experts > 0, "n_routed_experts", c.n_routed_experts, "1 or more");
        ask(c.moe_intermediate_size > 0, "moe_intermediate_size", c.moe_intermediate_size, "1 or more");
        ask(c.num_experts_per_tok > 0, "num_experts_per_tok", c.num_experts_per_tok, "1 or more");
        ask(c.num_experts_per_tok <= c.n_routed_experts, "num_experts_per_tok", c.num_experts_per_tok,
            text_of("at most ", c.n_routed_experts, ", the routed experts"));
        ask(c.n_routed_experts % c.n_group == 0, "n_group", c.n_group,
            text_of("a divisor of ", c.n_routed_experts, ", the routed experts"));
        ask(c.topk_group <= c.n_group, "topk_group", c.topk_group, text_of("at most ", c.n_group, ", the groups"));
        ask(c.num_experts_per_tok <= c.topk_group * (c.n_routed_experts / c.n_group), "num_experts_per_tok",
            c.num_experts_per_tok, "at most the experts of the groups that are kept");
        ask(c.type != family::deepseek_v3 || c.n_group == 1 || c.n_routed_experts / c.n_group >= 2, "n_group",
            c.n_group, "two experts or more in each group");
        ask(c.num_nextn_predict_layers <= max_prediction_depths, "num_nextn_predict_layers", c.num_nextn_predict_layers,
            text_of("at most ", max_prediction_depths));
    }

    const json::value& root_;
    std::string_view file_;
    model_config config_;
};

}  // namespace detail

/// The model that a config.json describes, as transformers 5 writes it or as DeepSeek released it. Errors, each with
/// file, place, found and expected: a missing key, a wrong kind of value, sizes that do not fit together, a family or
/// setting that this version does not have.
[[nodiscard]] inline model_config config_from_json(const json::value& root, std::string_view file) {
    return detail::config_reader{root, file}.read();
}

/// The config.json with which transformers opens a model's weights.
[[nodiscard]] inline json::value config_to_json(const model_config& c, const file_details& details = {}) {
    using namespace detail;
    const family_facts& kind = facts_of(c.type);
    const auto token = [](std::optional<integer> id) { return id ? json::value{*id} : json::value{}; };
    json::value out;
    out.set("architectures", json::array{kind.architecture});
    out.set("model_type", kind.model_type);
    out.set("dtype", details.dtype);
    for (const size_key& key : size_keys) {
        if (!(key.families & bit(c.type))) continue;
        const integer value = c.*key.member;
        out.set(key.name, key.given == presence::nullable && value == 0 ? json::value{} : json::value{value});
    }
    out.set("num_key_value_heads", c.latent() ? c.num_attention_heads : c.key_value_heads());
    out.set("head_dim", c.latent() ? c.qk_rope_head_dim : c.width_of_head());
    if (c.latent()) out.set("qk_head_dim", c.qk_nope_head_dim + c.qk_rope_head_dim);
    for (const switch_key& key : switch_keys)
        if (key.families & bit(c.type)) out.set(key.name, c.*key.member);
    for (const real_key& key : real_keys)
        if (key.families & bit(c.type)) out.set(key.name, c.*key.member);
    if (c.type == family::deepseek_v2) out.set("topk_method", c.n_group > 1 ? "group_limited_greedy" : "greedy");
    if (c.type == family::deepseek_moe) out.set("scoring_func", "softmax");

    json::value turns = json::object{{"rope_theta", c.rope.theta}};
    turns.set("rope_type", c.rope.kind == rope::scaling::yarn     ? "yarn"
                           : c.rope.kind == rope::scaling::linear ? "linear"
                                                                  : "default");
    if (c.rope.kind == rope::scaling::linear) turns.set("factor", c.rope.factor);
    if (c.rope.kind == rope::scaling::yarn) {
        for (const rope_key& key : rope_keys)
            if (key.required || c.rope.*key.member != 0) turns.set(key.name, c.rope.*key.member);
        turns.set(original_length, c.rope.original_max_position_embeddings);
    }
    out.set("rope_parameters", std::move(turns));

    out.set("hidden_act", "silu");
    out.set("attention_dropout", 0.0);
    if (c.type != family::deepseek_v3) out.set("mlp_bias", false);
    out.set("bos_token_id", token(details.bos_token_id));
    out.set("eos_token_id", token(details.eos_token_id));
    out.set("pad_token_id", nullptr);
    out.set("use_cache", false);
    return out;
}

/// Fails unless both describe the same arithmetic: names every key that disagrees, with both values. What does not
/// change a forward pass is left out (initializer_range), and so is the number of prediction modules: released files
/// name modules whose weights they leave out, so the weights decide.
inline void check_same(const model_config& described, const model_config& found, std::string_view file) {
    using namespace detail;
    std::string apart;
    const auto compare = [&](const char* key, const auto& in_file, const auto& here) {
        if (in_file != here)
            apart += text_of(apart.empty() ? "" : "; ", key, ": found ", in_file, ", the described model has ", here);
    };
    const auto word = [](bool on) { return std::string_view{on ? "true" : "false"}; };
    const auto kind = [](rope::scaling s) {
        return std::string_view{s == rope::scaling::yarn ? "yarn" : s == rope::scaling::linear ? "linear" : "default"};
    };
    compare("model_type", std::string_view{facts_of(found.type).model_type},
            std::string_view{facts_of(described.type).model_type});
    if (found.type == described.type) {
        const unsigned known = bit(found.type);
        for (const size_key& key : size_keys) {
            if (!(key.families & known) || key.member == &model_config::num_nextn_predict_layers) continue;
            if (key.member == &model_config::num_key_value_heads)
                compare(key.name, found.key_value_heads(), described.key_value_heads());
            else if (key.member == &model_config::head_dim)
                compare(key.name, found.width_of_head(), described.width_of_head());
            else
                compare(key.name, found.*key.member, described.*key.member);
        }
        for (const switch_key& key : switch_keys)
            if (key.families & known) compare(key.name, word(found.*key.member), word(described.*key.member));
        for (const real_key& key : real_keys)
            if (key.families & known && key.member != &model_config::initializer_range)
                compare(key.name, found.*key.member, described.*key.member);
    }
    compare("rope_theta", found.rope.theta, described.rope.theta);
    compare("rope_type", kind(found.rope.kind), kind(described.rope.kind));
    if (found.rope.kind == described.rope.kind && found.rope.kind != rope::scaling::none) {
        for (const rope_key& key : rope_keys) {
            compare(key.name, found.rope.*key.member, described.rope.*key.member);
            if (found.rope.kind == rope::scaling::linear) break;
        }
        compare(original_length, found.rope.original_max_position_embeddings,
                described.rope.original_max_position_embeddings);
    }
    if (!apart.empty()) fail(file, ": ", apart);
}

}  // namespace fathom::models
