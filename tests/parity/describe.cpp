// What `describe` says of every stored case: the text is the one that is compiled here, and the compiled description
// has the tensors of the case's checkpoint and the numbers of its config.json.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fathom/checkpoint/safetensors.hpp>
#include <fathom/core/file.hpp>
#include <fathom/models/checkpoint_tensors.hpp>
#include <fathom/models/description.hpp>
#include <fathom/models/hugging_face.hpp>
#include <string>
#include <vector>

#include "described_models.hpp"

namespace {

using namespace fathom;

std::string below_tests(const std::string& path) {
    const char* root = std::getenv("FATHOM_SOURCE_ROOT");
    return text_of(std::string_view{root != nullptr ? root : "."}, "/tests/", path);
}

std::vector<models::checkpoint_tensor> stored_tensors(const std::string& folder) {
    std::vector<models::checkpoint_tensor> all;
    const safetensors::file file{folder + "/model.safetensors"};
    for (const auto& tensor : file.tensors()) all.push_back({tensor.name, {tensor.shape.begin(), tensor.shape.end()}});
    return all;
}

template <class Model> void check_case(const std::string& set, const std::string& name) {
    const std::string folder = below_tests(set + '/' + name), path = folder + "/config.json";
    models::model_config config = models::config_from_json(json::parse_file(path), path);
    const auto stored = stored_tensors(folder);
    config.num_nextn_predict_layers = models::prediction_depths(config, stored);

    const mapped_file source{below_tests("parity/described_models.hpp")};
    CHECK(source.text().find(models::description(config, name)) != std::string_view::npos);

    const auto described = models::checkpoint_tensors(Model::family::template transformer<float>(Model::config()));
    CHECK_NOTHROW(models::check_tensors(described, stored, folder));
    CHECK(described == models::checkpoint_tensors_of(config));
    CHECK_NOTHROW(models::check_same(Model::config(), config, path));
    CHECK(Model::config().num_nextn_predict_layers == config.num_nextn_predict_layers);
    CHECK(Model::config().initializer_range == config.initializer_range);
}

}  // namespace

#define DESCRIBED(set, name) \
    TEST_CASE("describe " #set "/" #name) { check_case<described::name>(#set, #name); }

// v32_dsa and v4_mixed describe models that this version does not have; they are refused, as tests/unit/models checks.
DESCRIBED(oracle, llama_gqa)
DESCRIBED(oracle, llama_gqa_packed)
DESCRIBED(oracle, llama_gqa_traj)
DESCRIBED(oracle, llama_linear_rope_tied)
DESCRIBED(oracle, v2_group_limited)
DESCRIBED(oracle, v2_group_limited_traj)
DESCRIBED(oracle, v2lite_greedy)
DESCRIBED(oracle, v3_mtp)
DESCRIBED(oracle, v3_packed)
DESCRIBED(oracle, v3_plain)
DESCRIBED(oracle, v3_plain_traj)
DESCRIBED(oracle, v3_qlora_bias_eps)
DESCRIBED(oracle, v3_switches)
DESCRIBED(oracle, v3_yarn)
DESCRIBED(oracle, v3_yarn_traj)
DESCRIBED(reference, v3_all)
DESCRIBED(reference, v3_all_trajectory)
DESCRIBED(reference, v3_balance)
DESCRIBED(reference, v3_mtp2)
DESCRIBED(reference, v3_z_loss)
