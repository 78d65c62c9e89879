// Descriptions as text, and tensors that do not fit them.
#include <fathom/models/description.hpp>

#include <doctest/doctest.h>

#include <fathom/models/checkpoint_tensors.hpp>
#include <fathom/models/released.hpp>

namespace {

using namespace fathom;

template <class Work> std::string complaint(const Work& work) {
    try {
        work();
    } catch (const error& wrong) {
        return wrong.what();
    }
    return "no error";
}

struct small : deepseek_v3<vocab_size<11>, hidden_size<8>, num_hidden_layers<1>, first_k_dense_replace<0>,
                           num_attention_heads<2>, kv_lora_rank<4>, qk_nope_head_dim<4>, qk_rope_head_dim<2>,
                           v_head_dim<4>, moe_intermediate_size<4>, n_routed_experts<2>, num_experts_per_tok<1>,
                           num_nextn_predict_layers<1>, tie_word_embeddings<true>> {};

}  // namespace

TEST_CASE("what goes without saying is not said, and numbers are written so that they read back") {
    CHECK(models::description(released::llm_7b::config(), "mine") ==
          "struct mine : deepseek_llm<\n"
          "    vocab_size<102400>, hidden_size<4096>, num_hidden_layers<30>, num_attention_heads<32>,\n"
          "    intermediate_size<11008>> {};\n");
    models::model_config c = released::llm_7b::config();
    c.rope.theta = 1e10;
    c.rms_norm_eps = 1e-5;
    c.rope.kind = ops::rope_facts::scaling::linear;
    c.rope.factor = 2.5;
    const std::string text = models::description(c, "mine");
    CHECK(text.find("rms_norm_eps<1e-05>") != text.npos);
    CHECK(text.find("rope_theta<1e+10>, linear_rope<factor<2.5>>> {};") != text.npos);
    c.rope.theta = 4294967297;
    CHECK(models::description(c, "mine").find("rope_theta<4294967297.0>") != text.npos);
}

TEST_CASE("a name is an identifier") {
    for (const char* name : {"", "3b", "a-b", "a b", "a;"})
        CHECK(complaint([&] { (void)models::description(released::v3::config(), name); }).find("expected letters") !=
              std::string::npos);
}

TEST_CASE("tensors beside the described ones are copies of them, or an error") {
    const auto described = models::checkpoint_tensors_of(small::config());
    CHECK(models::prediction_depths(small::config(), described) == 1);
    CHECK(complaint([&] { models::check_tensors(described, described, "F"); }) == "no error");
    auto stored = described;
    stored.push_back({"lm_head.weight", {11, 8}});
    stored.push_back({"model.layers.1.embed_tokens.weight", {11, 8}});
    stored.push_back({"model.layers.1.shared_head.head.weight", {11, 8}});
    stored.push_back({"model.layers.0.mlp.experts.1.up_proj.weight_scale_inv", {1, 1}});
    stored.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {1}});
    CHECK(complaint([&] { models::check_tensors(described, stored, "F"); }) == "no error");
    stored.back() = {"model.layers.0.mlp.extra.weight", {3, 4}};
    CHECK(complaint([&] { models::check_tensors(described, stored, "F"); }) ==
          "F: tensor model.layers.0.mlp.extra.weight: found it with shape [3, 4], expected only what the model "
          "describes");
    stored.back() = {"model.layers.1.shared_head.head.weight", {11, 9}};
    CHECK(complaint([&] { models::check_tensors(described, stored, "F"); }) ==
          "F: tensor model.layers.1.shared_head.head.weight: found shape [11, 9], expected [11, 8]");
    stored = described;
    stored.erase(stored.begin());
    CHECK(complaint([&] { models::check_tensors(described, stored, "F"); }) ==
          "F: tensor model.embed_tokens.weight: found none, expected shape [11, 8]");
    stored = described;
    stored[1].shape = {7};
    CHECK(complaint([&] { models::check_tensors(described, stored, "F"); }).find("found shape [7], expected") !=
          std::string::npos);
}
