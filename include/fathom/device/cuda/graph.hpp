// A piece of a step that is the same every time, put on a stream by one call instead of one for each kernel.
#pragma once

#include <fathom/device/cuda/queue.hpp>

namespace fathom::cuda {

/// What lies between two declared readbacks, as a CUDA graph. Its kernels, sizes and addresses never change: arenas lie
/// still, and what changes from step to step is in the arena.
class graph {
  public:
    /// `name` lives as long as the program.
    graph(gpu& of, const char* name) : of_(&of), name_(name) {}
    graph(const graph&) = delete;
    graph& operator=(const graph&) = delete;
    ~graph() {
        if (executable_ != nullptr) of_->calls().executable_destroy(executable_);
    }

    /// Puts on the queue what `body()` puts there. The first call runs `body` as it is, so that libraries and kernels
    /// have taken what they take once; the second captures it; later ones replay without calling it. `body` may fork to
    /// other queues by events and must join them before it ends. Errors: a readback or a wait of the host in it; events
    /// from outside of it; queues that are not joined.
    template <class Body> void run(const queue& on, Body&& body) {
        if (!warm_) {
            body();
            warm_ = true;
            return;
        }
        if (executable_ == nullptr) capture(on, body);
        of_->remember(name_);
        of_->check(of_->calls().graph_launch(executable_, on.stream), name_);
    }
    [[nodiscard]] bool captured() const { return executable_ != nullptr; }

  private:
    template <class Body> void capture(const queue& on, Body&& body) {
        constexpr int strict_for_this_thread = 1;
        of_->check(of_->calls().begin_capture(on.stream, strict_for_this_thread), "cudaStreamBeginCapture");
        of_->set_capturing(name_);
        void* made = nullptr;
        try {
            body();
        } catch (...) {
            of_->set_capturing(nullptr);
            of_->calls().end_capture(on.stream, &made);
            if (made != nullptr) of_->calls().graph_destroy(made);
            of_->calls().last_error();
            throw;
        }
        of_->set_capturing(nullptr);
        of_->check(of_->calls().end_capture(on.stream, &made), "cudaStreamEndCapture");
        const int status = of_->calls().instantiate(&executable_, made, 0);
        of_->calls().graph_destroy(made);
        of_->check(status, "cudaGraphInstantiate");
    }

    gpu* of_;
    const char* name_;
    void* executable_ = nullptr;
    bool warm_ = false;
};

}  // namespace fathom::cuda
