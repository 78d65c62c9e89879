// Matrices that lie in slices over the files of several ranks, seen as one set, so that a rank reads what it holds
// whoever wrote it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fathom/checkpoint/safetensors.hpp"
#include "fathom/checkpoint/slice.hpp"
#include "fathom/core/error.hpp"

namespace fathom::checkpoint {

/// The slices in some safetensors files, which are mapped: only what is copied is read. Errors, each naming the file
/// and the tensor: those of safetensors::file; a matrix whose slices differ in format or in the size of the whole, or
/// are not as many numbers as it has.
class sliced_matrices {
  public:
    explicit sliced_matrices(const std::vector<std::string>& paths) {
        for (const std::string& path : paths) files_.emplace_back(path);
        for (const safetensors::file& from : files_)
            for (const safetensors::stored_tensor& tensor : from.tensors())
                safetensors::detail::within(text_of(from.path(), ": tensor \"", tensor.name, '"'), [&] {
                    slices_.push_back({slice::of_stored(tensor.name, tensor.shape), &tensor});
                });
        std::sort(slices_.begin(), slices_.end(),
                  [](const stored& a, const stored& b) { return a.of.name < b.of.name; });
        for (std::size_t i = 0; i < slices_.size();) i += check(slices_named(slices_[i].of.name));
    }

    /// All slices of a matrix lie next to each other.
    struct stored {
        slice of;
        const safetensors::stored_tensor* tensor;
    };
    [[nodiscard]] std::span<const stored> slices() const { return slices_; }
    /// None, where there is no such matrix.
    [[nodiscard]] std::span<const stored> slices_named(std::string_view name) const {
        const auto [begin, end] = std::equal_range(slices_.begin(), slices_.end(), name, by_name{});
        return {begin, end};
    }
    /// Numbers in all.
    [[nodiscard]] integer numbers() const {
        integer sum = 0;
        for (const stored& s : slices_) sum += s.of.size();
        return sum;
    }

    /// Copies a slice, whatever slices the files have. Errors: none of that name, or of another shape or format.
    void copy(const slice& wanted, safetensors::dtype type, std::byte* to) const {
        const auto parts = slices_named(wanted.name);
        if (parts.empty())
            fail(files_.empty() ? std::string{} : files_[0].path(), ": found no tensor \"", wanted.name, "\" among ",
                 slices_.size(), " there and in ", files_.size() - 1, " files beside it, expected it");
        const slice found = parts[0].of.all();
        if (found.whole_shape() != wanted.whole_shape() || parts[0].tensor->type != type)
            fail(parts[0].tensor->place(), "found shape ", safetensors::text_of_shape(found.whole_shape()),
                 " and type ", safetensors::name_of(parts[0].tensor->type), ", expected ",
                 safetensors::text_of_shape(wanted.whole_shape()), " and ", safetensors::name_of(type));
        const std::size_t each = size_of(type);
        integer copied = 0;
        for (const stored& part : parts) {
            const auto [row, row_end] = common(wanted.row, wanted.rows, part.of.row, part.of.rows);
            const auto [column, column_end] = common(wanted.column, wanted.columns, part.of.column, part.of.columns);
            if (row >= row_end || column >= column_end) continue;
            const auto offset = [&, first = column](const slice& in, integer r) {
                return static_cast<std::size_t>((r - in.row) * in.columns + first - in.column) * each;
            };
            const auto bytes = static_cast<std::size_t>(column_end - column) * each;
            for (integer r = row; r < row_end; ++r)
                std::memcpy(to + offset(wanted, r), part.tensor->bytes.data() + offset(part.of, r), bytes);
            copied += (row_end - row) * (column_end - column);
        }
        if (copied != wanted.size())
            fail(parts[0].tensor->place(), "found ", copied, " numbers of ", wanted.stored_name(), ", expected ",
                 wanted.size());
    }

  private:
    struct by_name {
        bool operator()(const stored& a, std::string_view b) const { return a.of.name < b; }
        bool operator()(std::string_view a, const stored& b) const { return a < b.of.name; }
    };
    static std::pair<integer, integer> common(integer a, integer a_count, integer b, integer b_count) {
        return {std::max(a, b), std::min(a + a_count, b + b_count)};
    }
    static std::size_t check(std::span<const stored> parts) {
        const stored& first = parts[0];
        integer sum = 0;
        for (const stored& part : parts) {
            if (part.of.whole_shape() != first.of.whole_shape() || part.tensor->type != first.tensor->type)
                fail(part.tensor->place(), "found a slice of ", safetensors::text_of_shape(part.of.whole_shape()), ' ',
                     safetensors::name_of(part.tensor->type), ", expected one of ",
                     safetensors::text_of_shape(first.of.whole_shape()), ' ', safetensors::name_of(first.tensor->type),
                     " as in ", first.tensor->file);
            sum += part.of.size();
        }
        if (const slice whole = first.of.all(); sum != whole.size())
            fail(first.tensor->place(), "found ", sum, " numbers in ", parts.size(), " slices, expected the ",
                 whole.size(), " of ", safetensors::text_of_shape(whole.whole_shape()));
        return parts.size();
    }

    std::vector<safetensors::file> files_;
    std::vector<stored> slices_;
};

}  // namespace fathom::checkpoint
