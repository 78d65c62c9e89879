// Slices of many ranks become whole tensors again with one tensor in memory at a time, as a model for others needs
// them.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fathom/checkpoint/sliced.hpp"
#include "fathom/core/file.hpp"

namespace fathom::checkpoint {

/// The matrices of `from`, which must outlive it, as whole tensors. Those that are cut are put together in the file
/// `path`. Errors: those of `copy` and of writing.
class assembled_matrices {
  public:
    assembled_matrices(const sliced_matrices& from, const std::string& path) {
        std::size_t bytes = 0;
        const auto all = from.slices();
        for (std::size_t i = 0; i < all.size(); i += from.slices_named(all[i].of.name).size()) {
            const auto& [of, tensor] = all[i];
            tensors_.push_back({of.name, tensor->type, of.whole_shape(), tensor->bytes, {}});
            if (of.whole()) continue;
            cut_.push_back({tensors_.size() - 1, of.all()});
            bytes += static_cast<std::size_t>(of.all().size()) * size_of(tensor->type);
        }
        if (cut_.empty()) return;
        fathom::detail::file_in_progress file{path, bytes, nullptr};
        std::vector<std::byte> one;
        for (const cut& c : cut_) {
            const safetensors::dtype type = tensors_[c.tensor].type;
            one.resize(static_cast<std::size_t>(c.of.size()) * size_of(type));
            from.copy(c.of, type, one.data());
            file.write(one);
        }
        file.move_onto_target();
        file_.emplace(path);
        std::size_t at = 0;
        for (const cut& c : cut_) {
            auto& tensor = tensors_[c.tensor];
            tensor.bytes = file_->data().subspan(at, static_cast<std::size_t>(c.of.size()) * size_of(tensor.type));
            at += tensor.bytes.size();
        }
    }
    /// Sorted by name.
    [[nodiscard]] const std::vector<safetensors::stored_tensor>& tensors() const { return tensors_; }

  private:
    struct cut {
        std::size_t tensor;
        slice of;
    };
    std::vector<safetensors::stored_tensor> tensors_;
    std::vector<cut> cut_;
    std::optional<mapped_file> file_;
};

}  // namespace fathom::checkpoint
