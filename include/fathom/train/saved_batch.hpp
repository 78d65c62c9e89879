// A batch as a file, so that a step that went wrong can be had again.
#pragma once

#include <cstdint>
#include <fathom/checkpoint/safetensors.hpp>
#include <fathom/train/batch_view.hpp>
#include <span>
#include <string>
#include <vector>

namespace fathom::train {

/// A batch that owns its numbers.
struct saved_batch {
    integer sequences = 0, length = 0;
    std::vector<std::int32_t> tokens, targets, positions, starts;

    [[nodiscard]] batch_view view() const {
        const auto or_null = [](const std::vector<std::int32_t>& all) { return all.empty() ? nullptr : all.data(); };
        return {sequences, length, or_null(tokens), or_null(targets), or_null(positions), or_null(starts)};
    }
};

/// Writes `tokens`, `targets` and, where they are given, `positions` and `starts`, each I32 [sequences, length], as a
/// safetensors file. Errors: those of safetensors::write.
inline void save_batch(const std::string& path, const batch_view& b) {
    std::vector<safetensors::stored_tensor> tensors;
    const auto add = [&](const char* name, const std::int32_t* numbers) {
        if (numbers == nullptr) return;
        const std::span all{numbers, static_cast<std::size_t>(b.sequences * b.length)};
        tensors.push_back({name, safetensors::dtype::i32, {b.sequences, b.length}, std::as_bytes(all), {}});
    };
    add("tokens", b.tokens);
    add("targets", b.targets);
    add("positions", b.positions);
    add("starts", b.starts);
    safetensors::write(path, tensors);
}

/// Reads what save_batch wrote. Errors: a file that is none, another shape or format; names file, tensor, found and
/// expected.
inline saved_batch load_batch(const std::string& path) {
    const safetensors::file from{path};
    saved_batch b;
    const auto& tokens = from.at("tokens");
    if (tokens.shape.size() != 2)
        fail(tokens.place(), "found shape ", safetensors::text_of_shape(tokens.shape),
             ", expected [sequences, length]");
    b.sequences = tokens.shape[0];
    b.length = tokens.shape[1];
    const auto read = [&](const safetensors::stored_tensor& stored, std::vector<std::int32_t>& to) {
        if (stored.type != safetensors::dtype::i32 || stored.shape != tokens.shape)
            fail(stored.place(), "found ", safetensors::name_of(stored.type), ' ',
                 safetensors::text_of_shape(stored.shape), ", expected I32 ", safetensors::text_of_shape(tokens.shape));
        std::vector<std::int64_t> wide(stored.size());
        safetensors::read_as<std::int64_t>(stored, wide);
        to.assign(wide.begin(), wide.end());
    };
    read(tokens, b.tokens);
    read(from.at("targets"), b.targets);
    if (const auto* positions = from.find("positions")) read(*positions, b.positions);
    if (const auto* starts = from.find("starts")) read(*starts, b.starts);
    return b;
}

}  // namespace fathom::train
