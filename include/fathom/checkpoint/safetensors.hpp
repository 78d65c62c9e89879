// The file format that models are exchanged in, read with every check that a file from a stranger calls for and written
// without a second copy of the weights in memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fathom/checkpoint/stored_tensor.hpp"
#include "fathom/core/error.hpp"
#include "fathom/core/file.hpp"
#include "fathom/core/json.hpp"

namespace fathom::safetensors {

/// The strings of a file's `__metadata__`, in its order.
using strings = std::vector<std::pair<std::string, std::string>>;

namespace detail {

/// The format's own bound: no honest header comes near it.
inline constexpr std::uint64_t longest_header = 100'000'000;

[[nodiscard]] inline dtype dtype_of(std::string_view name) {
    std::string known;
    for (std::size_t i = 0; i < std::size(dtypes); ++i) {
        if (name == dtypes[i].name) return static_cast<dtype>(i);
        known += text_of(i > 0 ? " " : "", dtypes[i].name);
    }
    fail("found dtype \"", name, "\", expected one of ", known);
}

/// Refuses negative extents, products beyond 64 bits, and bytes that are not what the shape takes.
inline void check_bytes(std::uint64_t found, dtype type, std::span<const std::int64_t> shape) {
    std::uint64_t expected = size_of(type);
    for (const std::int64_t extent : shape) {
        if (extent < 0) fail("found shape ", text_of_shape(shape), ", expected no negative extent");
        if (__builtin_mul_overflow(expected, static_cast<std::uint64_t>(extent), &expected))
            fail("found shape ", text_of_shape(shape), " of ", name_of(type), ", expected fewer than 2^64 bytes");
    }
    if (found != expected)
        fail("found ", found, " bytes, expected ", expected, " for ", name_of(type), ' ', text_of_shape(shape));
}

inline void refuse_duplicates(const std::string& path, std::span<const stored_tensor> tensors) {
    std::vector<std::string_view> names;
    for (const stored_tensor& tensor : tensors) names.push_back(tensor.name);
    std::sort(names.begin(), names.end());
    if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
        fail(path, ": tensor \"", *twice, "\": found a second time, expected each name once");
}

/// Runs `work` and puts "WHERE: " before the message of an error that it throws.
template <class Work> void within(std::string_view where, const Work& work) {
    try {
        work();
    } catch (const error& reason) {
        fail(where, ": ", std::string_view{reason.what()});
    }
}

}  // namespace detail

/// A safetensors file, mapped. Tensors point into it and stay valid while the object (or what it was moved to) lives.
/// Errors, each naming the file, the tensor, what was found and what was expected: a header that is too long for the
/// file, not JSON or has a name twice; an unknown dtype; a negative or overflowing shape; offsets outside the file, of
/// another length than the shape takes, overlapping or leaving bytes that belong to nobody.
class file {
  public:
    explicit file(std::string path) : mapped_{std::move(path)} {
        detail::within(this->path(), [this] { read(); });
    }

    [[nodiscard]] const std::string& path() const { return mapped_.path(); }
    /// Sorted by name.
    [[nodiscard]] const std::vector<stored_tensor>& tensors() const { return tensors_; }
    [[nodiscard]] const strings& metadata() const { return metadata_; }

    /// The tensor of that name, or nullptr.
    [[nodiscard]] const stored_tensor* find(std::string_view name) const { return find_in(tensors_, name); }
    /// The tensor of that name. Errors: there is none.
    [[nodiscard]] const stored_tensor& at(std::string_view name) const { return at_in(tensors_, name, path()); }

  private:
    friend class model_directory;

    static void sort_by_name(std::vector<stored_tensor>& tensors) {
        std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    }
    [[nodiscard]] static const stored_tensor* find_in(const std::vector<stored_tensor>& sorted, std::string_view name) {
        const auto found = std::lower_bound(sorted.begin(), sorted.end(), name,
                                            [](const auto& tensor, std::string_view key) { return tensor.name < key; });
        return found != sorted.end() && found->name == name ? &*found : nullptr;
    }
    [[nodiscard]] static const stored_tensor& at_in(const std::vector<stored_tensor>& sorted, std::string_view name,
                                                    const std::string& where) {
        if (const stored_tensor* found = find_in(sorted, name)) return *found;
        fail(where, ": found no tensor \"", name, "\" among ", sorted.size(), ", expected it");
    }

    void read() {
        const std::span<const std::byte> all = mapped_.data();
        std::uint64_t length = 0;
        if (all.size() < sizeof length)
            fail("found ", all.size(), " bytes, expected a safetensors file: 8 bytes of header length and a header");
        std::memcpy(&length, all.data(), sizeof length);
        const std::uint64_t most = std::min<std::uint64_t>(all.size() - sizeof length, detail::longest_header);
        if (length > most)
            fail("found a header length of ", length, ", expected at most ", most, " (a whole safetensors file?)");
        data_ = all.subspan(sizeof length + length);
        const json::value header = json::parse(mapped_.text().substr(sizeof length, length), "header");
        tensors_.reserve(header.size());
        for (const auto& [name, entry] : header.members()) {
            if (name == "__metadata__") {
                for (const auto& [key, text] : entry.members()) metadata_.emplace_back(key, text.as_string());
            } else {
                detail::within(text_of("tensor \"", name, '"'),
                               [&, &name = name, &entry = entry] { read(name, entry); });
            }
        }
        check_layout();
        sort_by_name(tensors_);
    }

    void read(const std::string& name, const json::value& entry) {
        for (const auto& [key, member] : entry.members())
            if (key != "dtype" && key != "shape" && key != "data_offsets")
                fail(member.place(), "found the member \"", key, "\", expected dtype, shape and data_offsets only");
        stored_tensor tensor{name, detail::dtype_of(entry.at("dtype").as_string()), {}, {}, path()};
        for (const json::value& extent : entry.at("shape").items()) tensor.shape.push_back(extent.as_int());
        const json::array& offsets = entry.at("data_offsets").items();
        if (offsets.size() != 2) fail("found ", offsets.size(), " data_offsets, expected 2");
        const std::int64_t begin = offsets[0].as_int(), end = offsets[1].as_int();
        if (begin < 0 || end < begin || static_cast<std::uint64_t>(end) > data_.size())
            fail("found data_offsets [", begin, ", ", end, "], expected them in order and within the ", data_.size(),
                 " bytes of data in the file");
        tensor.bytes = data_.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
        detail::check_bytes(tensor.bytes.size(), tensor.type, tensor.shape);
        tensors_.push_back(std::move(tensor));
    }

    /// Every byte of the data belongs to exactly one tensor.
    void check_layout() const {
        std::vector<const stored_tensor*> order;
        for (const stored_tensor& tensor : tensors_) order.push_back(&tensor);
        std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
            return std::pair{a->bytes.data(), a->bytes.size()} < std::pair{b->bytes.data(), b->bytes.size()};
        });
        const std::byte* covered = data_.data();
        const stored_tensor* previous = nullptr;
        for (const stored_tensor* tensor : order) {
            const std::ptrdiff_t gap = tensor->bytes.data() - covered;
            if (gap < 0)
                fail("tensor \"", tensor->name, "\": found data that overlaps tensor \"", previous->name, "\" by ",
                     -gap, " bytes, expected none shared");
            if (gap > 0)
                fail("tensor \"", tensor->name, "\": found ", gap,
                     " bytes of no tensor before its data, expected none");
            covered += tensor->bytes.size();
            previous = tensor;
        }
        if (const std::ptrdiff_t rest = data_.data() + data_.size() - covered; rest > 0)
            fail("found ", rest, " bytes after the last tensor, expected the end of the file");
    }

    mapped_file mapped_;
    std::span<const std::byte> data_;
    std::vector<stored_tensor> tensors_;
    strings metadata_;
};

/// Writes the tensors as the file `path`, whole or not at all, straight from their bytes. They are laid out from wide
/// formats to narrow ones, so that each is aligned. transformers wants {"format", "pt"} in the metadata.
/// Errors: a name twice, bytes that do not fit the shape, what `write_atomically` refuses; each names file and tensor.
inline void write(const std::string& path, std::span<const stored_tensor> tensors, const strings& metadata = {},
                  file_hook hook = nullptr) {
    std::vector<const stored_tensor*> order;
    for (const stored_tensor& tensor : tensors) order.push_back(&tensor);
    std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
    std::stable_sort(order.begin(), order.end(),
                     [](const auto* a, const auto* b) { return size_of(a->type) > size_of(b->type); });

    json::object header;
    if (!metadata.empty()) {
        json::value entries{json::object{}};
        for (const auto& [key, text] : metadata) entries.set(key, text);
        header.emplace_back("__metadata__", std::move(entries));
    }
    std::size_t offset = 0;
    std::vector<std::span<const std::byte>> parts(2);
    for (const stored_tensor* tensor : order) {
        detail::within(text_of(path, ": tensor \"", tensor->name, '"'), [tensor] {
            if (tensor->name == "__metadata__")
                fail("found the name that the format keeps for itself, expected another");
            detail::check_bytes(tensor->bytes.size(), tensor->type, tensor->shape);
        });
        const std::size_t end = offset + tensor->bytes.size();
        header.emplace_back(tensor->name,
                            json::object{{"dtype", name_of(tensor->type)},
                                         {"shape", json::array(tensor->shape.begin(), tensor->shape.end())},
                                         {"data_offsets", json::array{std::exchange(offset, end), end}}});
        parts.push_back(tensor->bytes);
    }
    detail::refuse_duplicates(path, tensors);
    std::string text = json::write(std::move(header));
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const std::uint64_t length = text.size();
    if (length > detail::longest_header)
        fail(path, ": found a header of ", length, " bytes to write, expected at most ", detail::longest_header);
    parts[0] = std::as_bytes(std::span{&length, 1});
    parts[1] = std::as_bytes(std::span{text});
    write_atomically(path, parts, hook);
}

}  // namespace fathom::safetensors
