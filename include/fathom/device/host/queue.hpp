// Where work for a host rank is put: it runs at once, on the pool; the names are those that a stream of a GPU has too.
#pragma once

#include <cstddef>
#include <fathom/device/host/workers.hpp>
#include <fathom/tensor/arena.hpp>

namespace fathom::host {

/// A value that a kernel writes and the host reads: the only way for a number to come back in a step.
template <class T> struct readback {
    T* value = nullptr;
    [[nodiscard]] const T& get() const { return *value; }
};

/// A point in a queue. Host work is done when it was enqueued, so there is nothing to hold.
struct event {};

/// The host's queue: a pool of workers and, for each of them, a piece of scratch memory that lasts one task.
class queue {
  public:
    queue(workers& pool, std::byte* scratch, integer scratch_bytes)
        : pool_(&pool), scratch_(scratch), scratch_bytes_(scratch_bytes) {}

    /// Runs kernel(number, worker) for every number in [0, tasks) and returns when all are done.
    template <class Kernel> void enqueue(integer tasks, Kernel&& kernel) { pool_->run(tasks, kernel); }
    [[nodiscard]] event record() const { return {}; }
    void wait(event) {}
    template <class T> [[nodiscard]] readback<T> read(T* value) const { return {value}; }
    /// Scratch of one worker, empty at the start of a task.
    [[nodiscard]] arena scratch(int worker) const { return {scratch_ + worker * scratch_bytes_, scratch_bytes_}; }
    [[nodiscard]] integer scratch_bytes() const { return scratch_bytes_; }
    /// The same pool with other scratch memory, for work that was planned apart.
    [[nodiscard]] queue with_scratch(std::byte* scratch, integer scratch_bytes) const {
        return {*pool_, scratch, scratch_bytes};
    }
    [[nodiscard]] int workers_count() const { return pool_->count(); }

  private:
    workers* pool_;
    std::byte* scratch_;
    integer scratch_bytes_;
};

}  // namespace fathom::host
