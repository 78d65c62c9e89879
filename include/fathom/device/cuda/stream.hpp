// The owner of a queue: a CUDA stream.
#pragma once

#include <fathom/device/cuda/queue.hpp>

namespace fathom::cuda {

/// What has a free multiprocessor first: `high` is for operations between ranks, which others wait for.
enum class priority : unsigned char { normal, high };

class stream {
  public:
    explicit stream(gpu& of, priority first = priority::normal) : queue_{&of, nullptr} {
        int least = 0, greatest = 0;
        of.check(of.calls().priority_range(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
        constexpr unsigned beside_the_null_stream = 1;
        of.check(of.calls().stream_create(&queue_.stream, beside_the_null_stream,
                                          first == priority::high ? greatest : least),
                 "cudaStreamCreateWithPriority");
    }
    stream(const stream&) = delete;
    stream& operator=(const stream&) = delete;
    ~stream() { queue_.of->calls().stream_destroy(queue_.stream); }

    [[nodiscard]] const cuda::queue& queue() const { return queue_; }

  private:
    cuda::queue queue_;
};

}  // namespace fathom::cuda
