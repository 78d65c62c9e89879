// All memory of a rank as one block that code carves in order: run at compile time the same code counts, run at start
// it hands out views.
#pragma once

#include <array>
#include <cstddef>
#include <fathom/core/bytes.hpp>
#include <fathom/core/error.hpp>
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

/// One named piece of memory.
struct arena_item {
    const char* name = nullptr;
    lifetime lives = lifetime::run;
    integer first = 0;  // layer
    integer count = 0;  // layers, or workers
    integer offset = 0;
    integer bytes = 0;
};

/// What was carved from an arena, in order.
struct arena_log {
    std::array<arena_item, 48> items{};
    integer count = 0;
};

/// Carves a block from its start. Without a block (counting) views have no data and only the size grows.
class arena {
  public:
    /// Every piece starts at a cache line.
    static constexpr integer alignment = 64;

    constexpr arena() = default;
    constexpr arena(std::byte* block, integer size) : block_(block), size_(size) {}

    /// rows x width numbers that live as long as this arena's block.
    template <class T> constexpr matrix<T> take(integer rows, integer width) {
        const integer first = used_;
        used_ += round_up(rows * width * static_cast<integer>(sizeof(T)), alignment);
        peak_ = used_ > peak_ ? used_ : peak_;
        if (block_ == nullptr) return {nullptr, rows, width};
        return {reinterpret_cast<T*>(block_ + first), rows, width};
    }
    template <class T> constexpr T* take(integer count) { return take<T>(1, count).data; }
    /// Goes on as if `bytes` more had been carved: for the rest of many equal pieces, of which one was counted.
    constexpr void skip(integer bytes) {
        used_ += bytes;
        peak_ = used_ > peak_ ? used_ : peak_;
    }
    /// Writes what was carved since the last mark to the log, under a name.
    constexpr void mark(const char* name, lifetime lives, integer first = 0, integer count = 1) {
        if (log_ == nullptr) return;
        if (log_->count == static_cast<integer>(log_->items.size()))
            fail("arena: found a further piece, \"", name, "\", expected at most ", log_->count, " in a log");
        log_->items[static_cast<std::size_t>(log_->count++)] = {name, lives, first, count, marked_, used_ - marked_};
        marked_ = used_;
    }
    constexpr void log_to(arena_log* log) { log_ = log; }
    /// What has been carved so far; `rewind` gives back all that was carved since.
    [[nodiscard]] constexpr integer used() const { return used_; }
    constexpr void rewind(integer used) { used_ = used; }
    /// The most that was in use at once.
    [[nodiscard]] constexpr integer peak() const { return peak_; }
    [[nodiscard]] constexpr integer size() const { return size_; }
    [[nodiscard]] constexpr bool counting() const { return block_ == nullptr; }

  private:
    std::byte* block_ = nullptr;
    integer size_ = 0;
    integer used_ = 0;
    integer peak_ = 0;
    integer marked_ = 0;
    arena_log* log_ = nullptr;
};

}  // namespace fathom
