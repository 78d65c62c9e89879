// A model's folder as Hugging Face lays it out, one file or shards with an index, seen as one set of tensors.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fathom/checkpoint/safetensors.hpp"
#include "fathom/core/error.hpp"
#include "fathom/core/file.hpp"
#include "fathom/core/json.hpp"

namespace fathom::safetensors {

namespace detail {

inline constexpr std::string_view single_file = "/model.safetensors", index_file = "/model.safetensors.index.json";

[[nodiscard]] inline bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

}  // namespace detail

/// All tensors of a model's folder; they stay valid while the object lives.
class model_directory {
  public:
    [[nodiscard]] const std::string& path() const { return path_; }
    /// Sorted by name.
    [[nodiscard]] const std::vector<stored_tensor>& tensors() const { return tensors_; }
    /// The files that hold them, each once.
    [[nodiscard]] const std::vector<file>& files() const { return files_; }

    /// The tensor of that name, or nullptr.
    [[nodiscard]] const stored_tensor* find(std::string_view name) const { return file::find_in(tensors_, name); }
    /// The tensor of that name. Errors: there is none.
    [[nodiscard]] const stored_tensor& at(std::string_view name) const { return file::at_in(tensors_, name, path_); }

  private:
    friend model_directory open_model_directory(const std::string& path);
    explicit model_directory(std::string path) : path_{std::move(path)} {
        const std::string single = path_ + std::string{detail::single_file};
        const std::string index = path_ + std::string{detail::index_file};
        if (detail::exists(single) && detail::exists(index))
            fail(path_, ": found both model.safetensors and model.safetensors.index.json, expected one of them");
        if (!detail::exists(index)) {
            if (!detail::exists(single))
                fail(path_, ": found neither model.safetensors nor model.safetensors.index.json, expected one of them");
            add(file{single});
            return;
        }
        read_index(index);
    }

    /// Every name of the weight map is in the shard it names and nowhere else, and the shards hold nothing beyond the
    /// map.
    void read_index(const std::string& index) {
        const json::value root = json::parse_file(index);
        std::vector<std::pair<std::string_view, std::string_view>> map;  // shard, tensor
        for (const auto& [tensor, shard] : root.at("weight_map").members()) {
            const std::string& name = shard.as_string();
            if (name.empty() || name.find_first_of(std::string_view{"/\0", 2}) != name.npos || name == "." ||
                name == "..")
                fail(shard.place(), "tensor \"", tensor, "\": found the shard \"", name,
                     "\", expected a file in the folder itself");
            map.emplace_back(name, tensor);
        }
        std::sort(map.begin(), map.end());
        for (std::size_t i = 0; i < map.size(); ++i) {
            if (i > 0 && map[i].first == map[i - 1].first) continue;
            const std::string shard = text_of(path_, '/', map[i].first);
            if (!detail::exists(shard))
                fail(index, ": tensor \"", map[i].second, "\": found the shard \"", map[i].first,
                     "\", which is missing");
            add(file{shard});
        }
        file::sort_by_name(tensors_);
        for (std::size_t i = 1; i < tensors_.size(); ++i)
            if (tensors_[i].name == tensors_[i - 1].name)
                fail(tensors_[i].place(), "found it in ", tensors_[i - 1].file, " too, expected it in one shard");
        for (const auto& [shard, tensor] : map)
            if (const stored_tensor* found = find(tensor); !found || found->file != text_of(path_, '/', shard))
                fail(index, ": tensor \"", tensor, "\": found it in ", found ? found->file : "no shard",
                     ", expected it in ", path_, '/', shard);
        if (map.size() == tensors_.size()) return;
        for (const stored_tensor& tensor : tensors_)
            if (!std::binary_search(map.begin(), map.end(), std::pair{shard_of(tensor), std::string_view{tensor.name}}))
                fail(tensor.place(), "found it in the shard, expected it in the weight_map of ", index);
    }
    [[nodiscard]] std::string_view shard_of(const stored_tensor& tensor) const {
        return std::string_view{tensor.file}.substr(path_.size() + 1);
    }

    void add(file from) {
        tensors_.insert(tensors_.end(), from.tensors().begin(), from.tensors().end());
        files_.push_back(std::move(from));
    }

    std::string path_;
    std::vector<file> files_;
    std::vector<stored_tensor> tensors_;
};

/// The model in a folder that holds `model.safetensors` or `model.safetensors.index.json` with its shards.
/// Errors: those of `file`; an index whose shard is missing or outside the folder; a tensor in two shards, in another
/// than the index says, or on one side only; each names file and tensor.
[[nodiscard]] inline model_directory open_model_directory(const std::string& path) { return model_directory{path}; }

/// Writes the tensors into a folder that holds no model yet: one `model.safetensors` if they fit `most_bytes`,
/// otherwise shards in the given order, none with more than `most_bytes` of data unless one tensor has, and last the
/// index that makes them a model. To replace a model as a whole, write it through `write_directory`. Errors: those of
/// `write`; a model that is there already.
inline void write_sharded(const std::string& folder, std::span<const stored_tensor> tensors, std::uint64_t most_bytes,
                          const strings& metadata = {}, file_hook hook = nullptr) {
    const std::string single = folder + std::string{detail::single_file},
                      index = folder + std::string{detail::index_file};
    if (detail::exists(single) || detail::exists(index))
        fail(folder, ": found a model there already, expected a folder without one; nothing was changed");
    std::vector<std::size_t> starts{0};
    std::uint64_t total = 0, filled = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const std::uint64_t bytes = tensors[i].bytes.size();
        if (i > starts.back() && (filled > most_bytes || bytes > most_bytes - filled)) {
            starts.push_back(i);
            filled = 0;
        }
        filled += bytes;
        total += bytes;
    }
    if (starts.size() == 1) return write(single, tensors, metadata, hook);

    detail::refuse_duplicates(folder, tensors);
    json::object map;
    starts.push_back(tensors.size());
    for (std::size_t shard = 0; shard + 1 < starts.size(); ++shard) {
        char name[64];
        std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", shard + 1, starts.size() - 1);
        const auto part = tensors.subspan(starts[shard], starts[shard + 1] - starts[shard]);
        write(text_of(folder, '/', std::string_view{name}), part, metadata, hook);
        for (const stored_tensor& tensor : part) map.emplace_back(tensor.name, name);
    }
    json::value root;
    root.set("metadata", json::object{{"total_size", total}});
    root.set("weight_map", std::move(map));
    write_atomically(index, json::write(root, 2) + '\n', hook);
}

}  // namespace fathom::safetensors
