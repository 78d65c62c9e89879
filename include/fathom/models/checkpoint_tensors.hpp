// The tensors that a model's checkpoint holds, by name and shape, so that a folder can be checked without loading it.
#pragma once

#include <algorithm>
#include <fathom/core/error.hpp>
#include <fathom/models/families.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::models {

struct checkpoint_tensor {
    std::string name;
    std::vector<integer> shape;
    bool operator==(const checkpoint_tensor&) const = default;
};

namespace detail {

inline std::string text_of_shape(const std::vector<integer>& shape) {
    std::string text = "[";
    for (const integer extent : shape) text += text_of(text.size() > 1 ? ", " : "", extent);
    return text + ']';
}

inline const checkpoint_tensor* find(const std::vector<checkpoint_tensor>& sorted, std::string_view name) {
    const auto found = std::lower_bound(sorted.begin(), sorted.end(), name,
                                        [](const checkpoint_tensor& t, std::string_view key) { return t.name < key; });
    return found != sorted.end() && found->name == name ? &*found : nullptr;
}

}  // namespace detail

/// What a models::transformer<T, Blocks...> stores, sorted by name: parameters and router biases.
template <class Transformer> std::vector<checkpoint_tensor> checkpoint_tensors(const Transformer& model) {
    std::vector<checkpoint_tensor> all;
    const auto add = [&](auto&, const nn::storage& facts, auto... prefixes) {
        for (const nn::part& part : facts.parts) {
            if (part.name == nullptr) continue;
            const std::string_view name = part.name;
            const std::size_t star = name.find('*');
            std::vector<integer> shape{part.rows * (facts.vector ? facts.width : 1)};
            if (!facts.vector) shape.push_back(facts.width);
            if (star == name.npos) all.push_back({text_of(prefixes..., name), shape});
            for (integer n = 0; star != name.npos && n < part.count; ++n)
                all.push_back({text_of(prefixes..., name.substr(0, star), n, name.substr(star + 1)), shape});
        }
    };
    model.template each_parameter<float>(nullptr, add);
    model.each_buffer(nullptr, add);
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return all;
}

/// The same of a model that is known only at run time.
[[nodiscard]] inline std::vector<checkpoint_tensor> checkpoint_tensors_of(const model_config& c) {
    if (c.latent()) return checkpoint_tensors(latent_family::transformer<float>(c));
    if (c.type == family::deepseek_moe) return checkpoint_tensors(grouped_query_experts_family::transformer<float>(c));
    return checkpoint_tensors(grouped_query_family::transformer<float>(c));
}

/// Modules of multi-token prediction whose weights are among `stored`.
[[nodiscard]] inline integer prediction_depths(const model_config& c, const std::vector<checkpoint_tensor>& stored) {
    integer depths = 0;
    const auto has = [&](integer k) {
        const std::string name = text_of("model.layers.", c.num_hidden_layers + k, ".eh_proj.weight");
        return std::any_of(stored.begin(), stored.end(), [&](const auto& t) { return t.name == name; });
    };
    while (has(depths)) ++depths;
    return depths;
}

/// Fails unless `stored` holds exactly the described tensors (sorted by name). Beside them a checkpoint may hold what
/// follows from others: embedding and head once more in each prediction module, a tied head, rotary frequencies, and
/// scales of 128 x 128 blocks of FP8 weights. Errors name place, tensor and both shapes.
inline void check_tensors(const std::vector<checkpoint_tensor>& described, const std::vector<checkpoint_tensor>& stored,
                          std::string_view place) {
    const checkpoint_tensor* embedding = detail::find(described, "model.embed_tokens.weight");
    const auto source_of = [&](std::string_view name, std::vector<integer>& shape) -> bool {
        const auto base = [&](std::string_view tail) { return name.substr(0, name.size() - tail.size()); };
        if (const std::string_view tail = "_scale_inv"; name.ends_with(tail)) {
            const checkpoint_tensor* weight = detail::find(described, base(tail));
            if (weight == nullptr) return false;
            for (const integer extent : weight->shape) shape.push_back(pieces(extent, 128));
            return true;
        }
        if (embedding != nullptr) shape = embedding->shape;
        const bool in_module = name.starts_with("model.layers.");
        return embedding != nullptr &&
               (name == "lm_head.weight" ||
                (in_module && (name.ends_with(".embed_tokens.weight") || name.ends_with(".shared_head.head.weight"))));
    };
    std::size_t met = 0;
    for (const checkpoint_tensor& tensor : stored) {
        const checkpoint_tensor* found = detail::find(described, tensor.name);
        if (tensor.name.ends_with(".rotary_emb.inv_freq")) continue;
        std::vector<integer> shape;
        if (found == nullptr && !source_of(tensor.name, shape))
            fail(place, ": tensor ", tensor.name, ": found it with shape ", detail::text_of_shape(tensor.shape),
                 ", expected only what the model describes");
        const std::vector<integer>& expected = found != nullptr ? found->shape : shape;
        if (tensor.shape != expected)
            fail(place, ": tensor ", tensor.name, ": found shape ", detail::text_of_shape(tensor.shape), ", expected ",
                 detail::text_of_shape(expected));
        met += found != nullptr ? 1 : 0;
    }
    if (met == described.size()) return;
    for (const checkpoint_tensor& tensor : described)
        if (std::none_of(stored.begin(), stored.end(), [&](const auto& t) { return t.name == tensor.name; }))
            fail(place, ": tensor ", tensor.name, ": found none, expected shape ", detail::text_of_shape(tensor.shape));
    fail(place, ": found a tensor twice, expected each once");
}

}  // namespace fathom::models
