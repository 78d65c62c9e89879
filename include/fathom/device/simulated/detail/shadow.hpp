// What is known of every byte that a simulated kernel touches: who wrote it, who read it, and when.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace fathom::simulated::detail {

/// One look at a byte. `time` counts the barriers of a block that were complete.
struct access {
    static constexpr int nobody = -1, several = -2;  // `several` blocks
    int block = nobody;
    int thread = nobody;
    int spread = 0;  // atomics of several threads count as one look: all of the same tile of 2^spread threads
    std::uint32_t time = 0;
};

struct cell {
    access writer;
    access readers[2];    // two of those that no barrier orders before a write: any writer clashes with one of them
    bool atomic = false;  // how it was written
    int pending = access::nobody;  // the thread whose asynchronous copy will fill it
};

/// The cells of one block's shared memory, by offset.
class shared_shadow {
  public:
    void clear(std::size_t bytes) { cells_.assign(bytes, cell{}); }
    cell& at(std::uintptr_t offset) { return cells_[offset]; }

  private:
    std::vector<cell> cells_;
};

/// The cells of global memory, by address: pages that are made when they are touched.
class global_shadow {
  public:
    cell& at(std::uintptr_t address) {
        constexpr std::uintptr_t page_bytes = 1024;
        if (address / page_bytes != last_number_ || last_ == nullptr) {
            auto& page = pages_[address / page_bytes];
            if (!page) page = std::make_unique<cell[]>(page_bytes);
            last_number_ = address / page_bytes;
            last_ = page.get();
        }
        return last_[address % page_bytes];
    }

  private:
    std::unordered_map<std::uintptr_t, std::unique_ptr<cell[]>> pages_;
    std::uintptr_t last_number_ = 0;
    cell* last_ = nullptr;
};

}  // namespace fathom::simulated::detail
