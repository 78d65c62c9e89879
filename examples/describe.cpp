// Turns the config.json of a Hugging Face folder into a description in C++, and checks the folder's tensors against it.
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <fathom/checkpoint/sharded.hpp>
#include <fathom/models/checkpoint_tensors.hpp>
#include <fathom/models/description.hpp>
#include <fathom/models/hugging_face.hpp>
#include <string>
#include <string_view>

namespace {

constexpr const char* help =
    R"(describe DIRECTORY|config.json [--name NAME]

Prints the C++ description of the model (struct NAME, default `described`), to be read under `using namespace fathom`.
Where weights lie beside the config.json, every tensor's name and shape is checked, and they decide how many
multi-token prediction modules there are.
)";

using namespace fathom;

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

void describe(std::string path, std::string_view name) {
    std::string folder = path;
    if (path.ends_with(".json")) {
        const std::size_t slash = path.rfind('/');
        folder = slash == path.npos ? "." : path.substr(0, slash);
    } else {
        path += "/config.json";
    }
    models::model_config config = models::config_from_json(json::parse_file(path), path);
    std::size_t tensors = 0;
    if (exists(folder + "/model.safetensors") || exists(folder + "/model.safetensors.index.json")) {
        const auto weights = safetensors::open_model_directory(folder);
        std::vector<models::checkpoint_tensor> stored;
        for (const auto& tensor : weights.tensors())
            stored.push_back({tensor.name, {tensor.shape.begin(), tensor.shape.end()}});
        config.num_nextn_predict_layers = models::prediction_depths(config, stored);
        models::check_tensors(models::checkpoint_tensors_of(config), stored, folder);
        tensors = stored.size();
    }
    std::printf("%s", models::description(config, name).c_str());
    if (tensors > 0) std::printf("// Its %zu tensors in %s have these names and shapes.\n", tensors, folder.c_str());
}

}  // namespace

int main(int argc, char** argv) try {
    std::string path, name = "described";
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (word == "--help" || word == "-h") return std::fputs(help, stdout) < 0;
        if (word == "--name" && i + 1 < argc)
            name = argv[++i];
        else if (path.empty() && !word.starts_with("-"))
            path = word;
        else
            fathom::fail("describe: found the argument ", word, ", expected DIRECTORY|config.json [--name NAME]");
    }
    if (path.empty()) fathom::fail("describe: found no path, expected DIRECTORY|config.json [--name NAME]");
    describe(path, name);
    return 0;
} catch (const std::exception& wrong) {
    std::fprintf(stderr, "%s\n", wrong.what());
    return 1;
}
