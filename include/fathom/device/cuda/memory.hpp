// The block of GPU memory that a rank's arena carves: taken once, and refused before the first allocation where the
// plan is larger than what is free.
#pragma once

#include <algorithm>
#include <fathom/core/text_of_bytes.hpp>
#include <fathom/device/cuda/queue.hpp>
#include <fathom/tensor/arena.hpp>
#include <string>
#include <utility>

namespace fathom::cuda {

namespace detail {

/// The three largest pieces of a plan, as an error names them.
[[nodiscard]] inline std::string largest_items(const arena_log& plan) {
    const auto used = static_cast<std::size_t>(plan.count);
    auto items = plan.items;
    const std::size_t named = std::min<std::size_t>(3, used);
    std::partial_sort(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(named),
                      items.begin() + static_cast<std::ptrdiff_t>(used),
                      [](const arena_item& a, const arena_item& b) { return a.bytes > b.bytes; });
    std::string text = named > 0 ? "; its largest items are" : "";
    for (std::size_t n = 0; n < named; ++n)
        text += text_of(n > 0 ? ", " : " ", items[n].name, ": ", text_of_bytes(items[n].bytes));
    return text;
}

}  // namespace detail

/// Throws if the GPU has less free memory than a plan needs. Before the first allocation: what libraries take later
/// comes on top.
inline void require_free(const gpu& of, integer bytes, const arena_log& plan) {
    std::size_t unused = 0, total = 0;
    of.check(of.calls().memory_info(&unused, &total), "cudaMemGetInfo");
    if (static_cast<integer>(unused) < bytes)
        fail(of.name(), ": found ", text_of_bytes(static_cast<integer>(unused)), " free of ",
             text_of_bytes(static_cast<integer>(total)), ", expected ", text_of_bytes(bytes), " for the plan",
             detail::largest_items(plan));
}

/// Owns `size` bytes of zeros, as work that is put on the queue after it sees them.
class memory {
  public:
    /// Errors: those of `require_free`, and CUDA's.
    memory(const queue& on, integer size, const arena_log& plan = {}) : of_(on.of), size_(size) {
        require_free(*of_, size, plan);
        void* block = nullptr;
        of_->check(of_->calls().allocate(&block, static_cast<std::size_t>(size)), "cudaMalloc");
        block_ = static_cast<std::byte*>(block);
        on.fill(block_, 0, size);
    }
    memory(memory&& other) noexcept
        : of_(other.of_), block_(std::exchange(other.block_, nullptr)), size_(other.size_) {}
    memory(const memory&) = delete;
    memory& operator=(const memory&) = delete;
    memory& operator=(memory&&) = delete;
    ~memory() {
        if (block_ != nullptr) of_->calls().free(block_);
    }
    [[nodiscard]] std::byte* data() const { return block_; }
    [[nodiscard]] integer size() const { return size_; }

  private:
    gpu* of_;
    std::byte* block_ = nullptr;
    integer size_;
};

}  // namespace fathom::cuda
