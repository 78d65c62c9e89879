// Host memory that a GPU copies from and to beside what the host does: batches on their way in, large readbacks on
// theirs out.
#pragma once

#include <fathom/device/cuda/queue.hpp>

namespace fathom::cuda {

/// Owns `size` bytes that lie still. The host touches them by `data`, which waits for the copies that were put on
/// queues before.
class pinned_memory {
  public:
    pinned_memory(gpu& of, integer size) : of_(&of), size_(size), last_(of, of.take_event()) {
        void* block = nullptr;
        of.check(of.calls().allocate_host(&block, static_cast<std::size_t>(size), 0), "cudaHostAlloc");
        block_ = static_cast<std::byte*>(block);
    }
    pinned_memory(const pinned_memory&) = delete;
    pinned_memory& operator=(const pinned_memory&) = delete;
    ~pinned_memory() { of_->calls().free_host(block_); }

    /// Errors: what failed on the GPU before; the GPU's limit.
    [[nodiscard]] std::byte* data() const {
        if (copied_) last_.wait();
        if (of_->calls().note != nullptr) {
            const access touched = writes(block_, size_);
            of_->calls().note(on_host, "the host", &touched, 1);
        }
        return block_;
    }
    [[nodiscard]] integer size() const { return size_; }

    /// Bytes [first, first + bytes) to the GPU.
    void copy_in(const queue& on, void* to, integer first, integer bytes) {
        begin(on, first, bytes);
        on.copy_in(to, block_ + first, bytes);
        end(on);
    }
    /// From the GPU to bytes [first, first + bytes).
    void copy_out(const queue& on, const void* from, integer first, integer bytes) {
        begin(on, first, bytes);
        on.copy_out(block_ + first, from, bytes);
        end(on);
    }

  private:
    void begin(const queue& on, integer first, integer bytes) const {
        if (first < 0 || bytes < 0 || first > size_ - bytes)
            fail("pinned memory: a copy has bytes ", first, " to ", first + bytes, ", expected them within ", size_);
        if (copied_) on.wait(last_);  // one copy after the other, so that the last stands for all
    }
    void end(const queue& on) {
        of_->check(of_->calls().event_record(last_.handle(), on.stream), "cudaEventRecord");
        copied_ = true;
    }

    gpu* of_;
    std::byte* block_ = nullptr;
    integer size_;
    event last_;
    bool copied_ = false;
};

}  // namespace fathom::cuda
