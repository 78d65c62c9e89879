// A point in a queue of a GPU, for other queues and the host to wait for.
#pragma once

#include <fathom/device/cuda/gpu.hpp>
#include <utility>

namespace fathom::cuda {

/// What `queue::record` gives. Its CUDA event goes back to the GPU's object when it dies: queues that were told to wait
/// still do.
class event {
  public:
    event(gpu& of, void* handle) : of_(&of), handle_(handle) {}
    event(event&& other) noexcept : of_(other.of_), handle_(std::exchange(other.handle_, nullptr)) {}
    event& operator=(event&& other) noexcept {
        std::swap(of_, other.of_);
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~event() {
        if (handle_ != nullptr) of_->give_back(handle_);
    }

    [[nodiscard]] void* handle() const { return handle_; }
    /// Whether all work before it is over. Errors: that of the work.
    [[nodiscard]] bool done() const { return of_->has_come(handle_); }
    /// The host waits. Errors: that of the work; the GPU's limit.
    void wait() const { of_->wait_for(handle_, "an event"); }

  private:
    gpu* of_;
    void* handle_;
};

}  // namespace fathom::cuda
