// The block of memory that a rank's arena carves: asked of the system once, zero, and touched only where it is used.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fathom/core/bytes.hpp>
#include <fathom/core/error.hpp>
#include <utility>

namespace fathom::host {

/// Owns `size` bytes of zeros.
class memory {
  public:
    explicit memory(integer size) : size_(size) {
        void* block = mmap(nullptr, static_cast<std::size_t>(size), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (block == MAP_FAILED)
            fail("host memory: asked for ", size, " bytes in one block and got none (", std::strerror(errno),
                 "), expected as much free address space");
        block_ = static_cast<std::byte*>(block);
        madvise(block_, static_cast<std::size_t>(size),
                MADV_HUGEPAGE);  // fewer misses of the address cache where the system has them
    }
    memory(memory&& other) noexcept : block_(std::exchange(other.block_, nullptr)), size_(other.size_) {}
    memory(const memory&) = delete;
    memory& operator=(const memory&) = delete;
    memory& operator=(memory&&) = delete;
    ~memory() {
        if (block_ != nullptr) munmap(block_, static_cast<std::size_t>(size_));
    }
    [[nodiscard]] std::byte* data() const { return block_; }
    [[nodiscard]] integer size() const { return size_; }

  private:
    std::byte* block_ = nullptr;
    integer size_ = 0;
};

}  // namespace fathom::host
