// Weights in and out under the names of Hugging Face checkpoints: the way into a described model from anywhere else,
// and back.
#pragma once

#include <algorithm>
#include <fathom/checkpoint/assembled.hpp>
#include <fathom/checkpoint/directory.hpp>
#include <fathom/checkpoint/sharded.hpp>
#include <fathom/checkpoint/together.hpp>
#include <fathom/models/hugging_face.hpp>
#include <fathom/train/engine.hpp>
#include <fathom/train/held_slices.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace fathom::train {

namespace detail {

/// The shape that checkpoints give a part.
inline std::vector<std::int64_t> stored_shape(const nn::storage& storage, const nn::part& part) {
    if (storage.vector) return {part.rows};
    return {part.rows, storage.width};
}

}  // namespace detail

/// One matrix of a run; where ranks split it, what this rank has of it.
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
            all.push_back({detail::numbered_name(p.name, part.number + n), detail::stored_shape(p.storage, part),
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

/// Reads a slice of a tensor of a directory.
template <class E>
void read_slice(const safetensors::model_directory& from, const checkpoint::slice& of, std::span<E> to) {
    const safetensors::stored_tensor* found = from.find(of.name);
    const auto shape = of.whole_shape();
    if (found == nullptr)
        fail(from.path(), ": tensor ", of.name, " is missing, expected shape ", safetensors::text_of_shape(shape),
             " to be read as ", number_file_name<E>);
    if (found->shape != shape)
        fail(from.path(), ": tensor ", of.name, " has shape ", safetensors::text_of_shape(found->shape), " and type ",
             safetensors::name_of(found->type), ", the described model expects shape ",
             safetensors::text_of_shape(shape), " read as ", number_file_name<E>);
    // Rows that are whole lie in one piece.
    const bool in_one = of.columns == of.of_columns;
    const integer times = in_one ? 1 : of.rows, count = of.size() / times;
    const auto bytes_of = [each = size_of(found->type)](integer n) { return static_cast<std::size_t>(n) * each; };
    safetensors::stored_tensor piece = *found;
    for (integer r = 0; r < times; ++r) {
        piece.bytes = found->bytes.subspan(bytes_of((of.row + r) * of.of_columns + of.column), bytes_of(count));
        const std::span<E> numbers = to.subspan(static_cast<std::size_t>(r * count), static_cast<std::size_t>(count));
        if constexpr (std::is_same_v<E, bf16>) {
            std::vector<float> wide(numbers.size());
            safetensors::read_as<float>(piece, wide);
            std::copy(wide.begin(), wide.end(), numbers.begin());
        } else {
            safetensors::read_as<E>(piece, numbers);
        }
    }
}
/// A router's bias, which every rank of its stage has whole.
template <class E> checkpoint::slice slice_of(const named_numbers<E>& vector) {
    return checkpoint::slice{vector.name, true, vector.shape[0], 1}.all();
}

template <class E> constexpr safetensors::dtype dtype_for() {
    return std::is_same_v<E, double>  ? safetensors::dtype::f64
           : std::is_same_v<E, float> ? safetensors::dtype::f32
                                      : safetensors::dtype::bf16;
}
/// A slice as it is written.
template <class E>
safetensors::stored_tensor tensor_of(const checkpoint::slice& of, const E* numbers, const char* prefix = "") {
    const std::span<const E> all{numbers, static_cast<std::size_t>(of.size())};
    return {prefix + of.stored_name(), dtype_for<E>(), of.shape(), std::as_bytes(all), {}};
}

/// The first of some names, the same on all ranks, that no rank knows.
inline std::optional<std::string> unknown_to_all(const comm::link& ranks, const std::vector<std::string>& names,
                                                 std::vector<std::string> known) {
    std::sort(known.begin(), known.end());
    std::vector<std::int32_t> seen;
    for (const std::string& name : names) seen.push_back(std::binary_search(known.begin(), known.end(), name) ? 1 : 0);
    ranks.run(comm::all_reduce(seen.data(), static_cast<integer>(seen.size()), comm::reduction::max)
                  .from("names of a checkpoint"));
    const auto found = std::find(seen.begin(), seen.end(), 0);
    if (found == seen.end()) return std::nullopt;
    return names[static_cast<std::size_t>(found - seen.begin())];
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

/// Loads a Hugging Face directory (model.safetensors, or its index and shards) into an engine: each rank reads what it
/// holds, and all call it. Errors name the tensor, both shapes and both types; a tensor that the description does not
/// have is an error too.
template <class Engine> void load_pretrained(Engine& engine, const std::string& directory) {
    using T = typename Engine::T;
    using A = typename Engine::A;
    const safetensors::model_directory from = safetensors::open_model_directory(directory);
    std::vector<std::string> known;
    const auto read = [&]<class E>(const checkpoint::slice& of, E* to) {
        detail::read_slice<E>(from, of, {to, static_cast<std::size_t>(of.size())});
        known.push_back(of.name);
    };
    each_held_slice(engine, [&](const held_slice<T, A>& s) {
        if (s.master != nullptr)
            read(s.of, s.master);
        else
            read(s.of, s.weights);
    });
    for (const auto& bias : named_router_biases(engine)) read(detail::slice_of(bias), bias.numbers.data());
    std::vector<std::string> names;
    for (const auto& tensor : from.tensors())
        if (!detail::is_copy(tensor.name, engine.model().of.tie_word_embeddings)) names.push_back(tensor.name);
    if (const auto foreign = detail::unknown_to_all(engine.ranks(), names, std::move(known))) {
        const safetensors::stored_tensor& tensor = from.at(*foreign);
        fail(from.path(), ": tensor ", tensor.name, " of shape ", safetensors::text_of_shape(tensor.shape),
             " and type ", safetensors::name_of(tensor.type),
             " is not in the described model, expected its tensors only");
    }
    engine.round_weights();
}

/// Writes a directory that Hugging Face transformers opens: config.json, model.safetensors (sharded beyond `most_bytes`
/// a file), and a copy of `tokenizer` as tokenizer.json if a path is given. Whole or not at all; errors as
/// checkpoint::write_directory. All ranks may call it, and those of a split model must: they write what they hold into
/// the folder, and rank 0 puts it together, one tensor in memory at a time.
template <class Engine>
void save_pretrained(Engine& engine, const models::model_config& config, const std::string& tokenizer,
                     const std::string& directory, std::uint64_t most_bytes = std::uint64_t{5} << 30) {
    using T = typename Engine::T;
    using A = typename Engine::A;
    const auto finish = [&](const std::string& into, const std::vector<safetensors::stored_tensor>& tensors) {
        safetensors::write_sharded(into, tensors, most_bytes, {{"format", "pt"}});
        models::file_details details;
        details.dtype = std::is_same_v<T, double> ? "float64" : std::is_same_v<T, float> ? "float32" : "bfloat16";
        write_atomically(into + "/config.json", json::write(models::config_to_json(config, details), 2));
        if (!tokenizer.empty()) write_atomically(into + "/tokenizer.json", mapped_file{tokenizer}.text());
    };
    const comm::link& ranks = engine.ranks();
    // Else every rank has the whole model.
    const bool together = Engine::transformer::split || engine.shape().shards.zero > 2;
    std::vector<safetensors::stored_tensor> tensors;
    if (together)
        each_held_slice(engine, [&](const held_slice<T, A>& s) {
            if (s.writes) tensors.push_back(detail::tensor_of(s.of, s.weights));
        });
    else
        for (const auto& value : named_state(engine, &parameter_view<T, A>::value))
            tensors.push_back({value.name,
                               detail::dtype_for<T>(),
                               value.shape,
                               std::as_bytes(std::span<const T>{value.numbers}),
                               {}});
    if (!together || engine.state().writes_buffers())
        for (const auto& bias : named_router_biases(engine))
            tensors.push_back(detail::tensor_of(detail::slice_of(bias), bias.numbers.data()));
    if (!together) {
        if (ranks.rank() == 0)
            checkpoint::write_directory(directory, [&](const std::string& into) { finish(into, tensors); });
        return;
    }
    const std::string partial = checkpoint::detail::partial_of(directory), stem = "slices";
    checkpoint::write_together(
        ranks, partial, stem, [&](const auto& fill) { checkpoint::write_directory(directory, fill); },
        [&](const std::string& path) { safetensors::write(path, tensors); },
        [&](const std::string& into, const std::vector<checkpoint::sealed_member>& written) {
            std::vector<std::string> paths;
            for (const auto& member : written) paths.push_back(into + '/' + member.name);
            const std::string joined = into + "/joined";
            finish(into, checkpoint::assembled_matrices{checkpoint::sliced_matrices{paths}, joined}.tensors());
            paths.push_back(joined);
            for (const std::string& path : paths) checkpoint::detail::remove_tree(path, nullptr);
            return std::vector<checkpoint::sealed_member>{};
        });
}

}  // namespace fathom::train
