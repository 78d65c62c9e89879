// All memory of a rank as one block that code carves in order: run at compile time the same code counts, run at start
// it hands out views.
#pragma once

#include <cstddef>
#include <fathom/core/bytes.hpp>
#include <fathom/tensor/matrix.hpp>

namespace fathom {

/// How long a piece of memory is needed: what a plan is made of.
enum class lifetime : unsigned char {
    run,       // weights, master weights, moments: from start to end
    step,      // gradients: over all micro-batches of a step
    saved,     // from a layer's forward to its backward
    deferred,  // from input-backward to weight-backward
    call,      // inside one call of one layer
};

/// Carves a block from its start. Without a block (counting) views have no data and only the size grows.
class arena {
  public:
    /// Every piece starts at a cache line.
    static constexpr index alignment = 64;

    constexpr arena() = default;
    constexpr arena(std::byte* block, index size) : block_(block), size_(size) {}

    /// rows x width numbers that live as long as this arena's block.
    template <class T> constexpr matrix<T> take(index rows, index width) {
        const index first = used_;
        used_ += round_up(rows * width * static_cast<index>(sizeof(T)), alignment);
        peak_ = used_ > peak_ ? used_ : peak_;
        if (block_ == nullptr) return {nullptr, rows, width};
        return {reinterpret_cast<T*>(block_ + first), rows, width};
    }
    template <class T> constexpr T* take(index count) { return take<T>(1, count).data; }
    /// What has been carved so far; `rewind` gives back all that was carved since.
    [[nodiscard]] constexpr index used() const { return used_; }
    constexpr void rewind(index used) { used_ = used; }
    /// The most that was in use at once.
    [[nodiscard]] constexpr index peak() const { return peak_; }
    [[nodiscard]] constexpr index size() const { return size_; }
    [[nodiscard]] constexpr bool counting() const { return block_ == nullptr; }

  private:
    std::byte* block_ = nullptr;
    index size_ = 0;
    index used_ = 0;
    index peak_ = 0;
};

}  // namespace fathom
