// Weights in and out under the names of Hugging Face checkpoints: the way into a described model from anywhere else,
// and back.
#pragma once

#include <algorithm>
#include <fathom/checkpoint/directory.hpp>
#include <fathom/checkpoint/sharded.hpp>
#include <fathom/models/hugging_face.hpp>
#include <fathom/train/engine.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace fathom::train {

namespace detail {

/// A name with `*` replaced by the number of a matrix in its stack.
inline std::string numbered_name(const std::string& name, integer number) {
    const std::size_t star = name.find('*');
    return star == std::string::npos ? name : name.substr(0, star) + std::to_string(number) + name.substr(star + 1);
}

/// The shape that checkpoints give a part.
inline std::vector<std::int64_t> stored_shape(const nn::storage& storage, const nn::part& part) {
    if (storage.vector) return {part.rows};
    return {part.rows, storage.width};
}

}  // namespace detail

/// One matrix of a run as a checkpoint stores it.
template <class E> struct named_numbers {
    std::string name;
    std::vector<std::int64_t> shape;
    std::span<E> numbers;
};

/// Every matrix of `state` (a member of parameter_view: value, master, gradient, ...), in the order of global indices;
/// router biases come last when asked for.
template <class E, class Engine>
std::vector<named_numbers<E>> named_state(Engine& engine,
                                          matrix<E> parameter_view<typename Engine::T, typename Engine::A>::*state) {
    std::vector<named_numbers<E>> all;
    engine.each_part([&](const auto& p, const nn::part& part) {
        for (integer n = 0; n < part.count; ++n) {
            const matrix<E> rows = (p.*state).rows_at(part.first + n * part.step, part.rows);
            all.push_back({detail::numbered_name(p.name, n), detail::stored_shape(p.storage, part),
                           std::span<E>{rows.data, static_cast<std::size_t>(rows.size())}});
        }
    });
    return all;
}

/// The biases of routers, which gradients do not train.
template <class Engine> auto named_router_biases(Engine& engine) {
    using A = typename Engine::A;
    std::vector<named_numbers<A>> all;
    engine.each_router_bias([&](std::string name, matrix<A> bias) {
        all.push_back({std::move(name), {bias.width}, std::span<A>{bias.data, static_cast<std::size_t>(bias.size())}});
    });
    return all;
}

namespace detail {

template <class E> void read_matrix(const safetensors::model_directory& from, const named_numbers<E>& to) {
    const safetensors::stored_tensor* found = from.find(to.name);
    if (found == nullptr)
        fail(from.path(), ": tensor ", to.name, " is missing, expected shape ", safetensors::text_of_shape(to.shape),
             " to be read as ", number_file_name<E>);
    if (!std::equal(found->shape.begin(), found->shape.end(), to.shape.begin(), to.shape.end()))
        fail(from.path(), ": tensor ", to.name, " has shape ", safetensors::text_of_shape(found->shape), " and type ",
             safetensors::name_of(found->type), ", the described model expects shape ",
             safetensors::text_of_shape(to.shape), " read as ", number_file_name<E>);
    if constexpr (std::is_same_v<E, bf16>) {
        std::vector<float> wide(to.numbers.size());
        safetensors::read_as<float>(*found, wide);
        std::copy(wide.begin(), wide.end(), to.numbers.begin());
    } else {
        safetensors::read_as<E>(*found, to.numbers);
    }
}

/// Copies that DeepSeek's checkpoints store a second time: embedding and head beside every prediction module, and a
/// tied head.
inline bool is_copy(const std::string& name, bool tied) {
    const auto ends = [&](std::string_view tail) { return name.size() > tail.size() && name.ends_with(tail); };
    return name.starts_with("model.layers.")
               ? ends(".embed_tokens.weight") || ends(".shared_head.head.weight") || ends(".rotary_emb.inv_freq")
               : tied && name == "lm_head.weight";
}

}  // namespace detail

/// Loads a Hugging Face directory (model.safetensors, or its index and shards) into an engine. Errors name the tensor,
/// both shapes and both types; a tensor that the description does not have is an error too.
template <class Engine> void load_pretrained(Engine& engine, const std::string& directory) {
    using view = parameter_view<typename Engine::T, typename Engine::A>;
    const safetensors::model_directory from = safetensors::open_model_directory(directory);
    std::vector<std::string> known;
    const auto read = [&](const auto& all) {
        for (const auto& to : all) {
            detail::read_matrix(from, to);
            known.push_back(to.name);
        }
    };
    // Master weights first: where they are the weights themselves this is all; elsewhere both are read from the file's
    // numbers.
    if (engine.memory().master.data != nullptr) read(named_state(engine, &view::master));
    if (static_cast<void*>(engine.memory().master.data) != static_cast<void*>(engine.memory().weights.data))
        read(named_state(engine, &view::value));
    read(named_router_biases(engine));
    std::sort(known.begin(), known.end());
    for (const auto& tensor : from.tensors())
        if (!std::binary_search(known.begin(), known.end(), tensor.name) &&
            !detail::is_copy(tensor.name, engine.model().of.tie_word_embeddings))
            fail(from.path(), ": tensor ", tensor.name, " of shape ", safetensors::text_of_shape(tensor.shape),
                 " and type ", safetensors::name_of(tensor.type),
                 " is not in the described model, expected its tensors only");
}

/// Writes a directory that Hugging Face transformers opens: config.json, model.safetensors (sharded beyond `most_bytes`
/// a file), and a copy of `tokenizer` as tokenizer.json if a path is given. Whole or not at all; errors as
/// checkpoint::write_directory.
template <class Engine>
void save_pretrained(Engine& engine, const models::model_config& config, const std::string& tokenizer,
                     const std::string& directory, std::uint64_t most_bytes = std::uint64_t{5} << 30) {
    using T = typename Engine::T;
    checkpoint::write_directory(directory, [&](const std::string& into) {
        std::vector<safetensors::stored_tensor> tensors;
        const auto add = [&]<class E>(const std::vector<named_numbers<E>>& all) {
            constexpr auto type = std::is_same_v<E, double>  ? safetensors::dtype::f64
                                  : std::is_same_v<E, float> ? safetensors::dtype::f32
                                                             : safetensors::dtype::bf16;
            for (const auto& n : all)
                tensors.push_back({n.name, type, n.shape, std::as_bytes(std::span<const E>{n.numbers}), {}});
        };
        add(named_state(engine, &parameter_view<T, typename Engine::A>::value));
        add(named_router_biases(engine));
        safetensors::write_sharded(into, tensors, most_bytes, {{"format", "pt"}});
        models::file_details details;
        details.dtype = std::is_same_v<T, double> ? "float64" : std::is_same_v<T, float> ? "float32" : "bfloat16";
        write_atomically(into + "/config.json", json::write(models::config_to_json(config, details), 2));
        if (!tokenizer.empty()) write_atomically(into + "/tokenizer.json", mapped_file{tokenizer}.text());
    });
}

}  // namespace fathom::train
