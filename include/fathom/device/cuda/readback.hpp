// Numbers that come back from a GPU in a step.
#pragma once

#include <fathom/device/cuda/gpu.hpp>
#include <span>
#include <utility>

namespace fathom::cuda {

/// What `queue::read` gives: a copy on its way to pinned memory. The host waits where it looks, and not before.
template <class T> class readback {
  public:
    readback(gpu& of, gpu::slot& from, integer count) : of_(&of), from_(&from), count_(count) {}
    readback(readback&& other) noexcept
        : of_(other.of_), from_(std::exchange(other.from_, nullptr)), count_(other.count_) {}
    readback& operator=(readback&& other) noexcept {
        std::swap(of_, other.of_);
        std::swap(from_, other.from_);
        std::swap(count_, other.count_);
        return *this;
    }
    ~readback() {
        if (from_ != nullptr) from_->held = false;
    }

    /// The numbers, for as long as this lives. Errors: what failed on the GPU before; the GPU's limit.
    [[nodiscard]] std::span<const T> all() const {
        of_->wait_for(from_->event, "a readback");
        const std::span<const T> seen{reinterpret_cast<const T*>(from_->data), static_cast<std::size_t>(count_)};
        if (of_->calls().note != nullptr) {
            const access touched = reads(seen.data(), static_cast<integer>(seen.size_bytes()));
            of_->calls().note(on_host, "a readback", &touched, 1);
        }
        return seen;
    }
    /// The first.
    [[nodiscard]] const T& get() const { return all()[0]; }

  private:
    gpu* of_;
    gpu::slot* from_;
    integer count_;
};

}  // namespace fathom::cuda
