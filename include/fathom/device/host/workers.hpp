// The one pool of threads of a host rank: work comes as numbered tasks of fixed size, so results never depend on how
// many threads there are.
#pragma once

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <exception>
#include <fathom/core/bytes.hpp>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

extern "C" void omp_set_num_threads(int) __attribute__((weak));

namespace fathom::host {

/// Threads that work off numbered tasks. The calling thread is worker 0. Every worker calls oneDNN with one thread. The
/// pool's own threads take no signals; a program with signal handlers must keep them off the calling thread, too.
class workers {
  public:
    explicit workers(int count) : count_(std::max(count, 1)) {
        one_library_thread();
        for (int w = 1; w < count_; ++w) threads_.emplace_back([this, w] { serve(w); });
    }
    workers(const workers&) = delete;
    workers& operator=(const workers&) = delete;
    ~workers() {
        stop_.store(true, std::memory_order_relaxed);
        announce();
        for (auto& thread : threads_) thread.join();
    }

    [[nodiscard]] int count() const { return count_; }

    /// Calls task(number, worker) for every number in [0, tasks), each once, in any order; returns when all are done.
    /// The first exception that a task throws is thrown again here.
    template <class Task> void run(integer tasks, Task&& task) {
        if (tasks <= 0) return;
        if (count_ == 1 || tasks == 1) {
            for (integer n = 0; n < tasks; ++n) task(n, 0);
            return;
        }
        using callable = std::remove_reference_t<Task>;
        context_ = const_cast<void*>(static_cast<const void*>(std::addressof(task)));
        run_ = [](void* context, integer number, int worker) { (*static_cast<callable*>(context))(number, worker); };
        tasks_ = tasks;
        unfinished_.store(tasks, std::memory_order_relaxed);
        left_.store(tasks, std::memory_order_release);
        announce();
        work(0);
        wait_until_zero(unfinished_);
        if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    }

  private:
    static constexpr int spins = 4000;  // about as long as a small task: sleeping and waking costs more

    static void one_library_thread() {
        if (omp_set_num_threads != nullptr) omp_set_num_threads(1);
    }
    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();  // as <immintrin.h> has it, which would be a third of fathom.hpp
#endif
    }
    void announce() {
        round_.fetch_add(1, std::memory_order_release);
        round_.notify_all();
    }
    static void wait_until_zero(std::atomic<integer>& value) {
        for (int s = 0; s < spins; ++s, pause())
            if (value.load(std::memory_order_acquire) == 0) return;
        for (integer seen; (seen = value.load(std::memory_order_acquire)) != 0;)
            value.wait(seen, std::memory_order_acquire);
    }
    /// Takes tasks while some are left. run_ and context_ are read with a task in hand only: until it is finished they
    /// stay, so a worker that wakes up late is waited for by nobody and finds the next run's tasks, or none.
    void work(int worker) {
        integer finished = 0;
        for (integer left; (left = left_.fetch_sub(1, std::memory_order_acquire)) > 0; ++finished) {
            try {
                run_(context_, tasks_ - left, worker);
            } catch (...) {
                finished += std::max<integer>(left_.exchange(0, std::memory_order_relaxed), 0);  // the rest is not done
                const std::lock_guard lock{failure_mutex_};
                if (!failure_) failure_ = std::current_exception();
            }
        }
        if (finished > 0 && unfinished_.fetch_sub(finished, std::memory_order_acq_rel) == finished)
            unfinished_.notify_one();
    }
    void serve(int worker) {
        // oneDNN's kernels use the heap as their stack: a signal here would be written into it (oneDNN's issue 4845).
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, nullptr);
        one_library_thread();
        for (unsigned seen = 0;;) {
            unsigned now = seen;
            for (int s = 0; s < spins && now == seen; ++s, pause()) now = round_.load(std::memory_order_acquire);
            while (now == seen) {
                round_.wait(seen, std::memory_order_acquire);
                now = round_.load(std::memory_order_acquire);
            }
            seen = now;
            if (stop_.load(std::memory_order_relaxed)) return;
            work(worker);
        }
    }

    int count_;
    std::vector<std::thread> threads_;
    void* context_ = nullptr;
    void (*run_)(void*, integer, int) = nullptr;
    integer tasks_ = 0;
    std::exception_ptr failure_;
    std::mutex failure_mutex_;
    std::atomic<bool> stop_{false};
    alignas(64) std::atomic<integer> left_{0};
    alignas(64) std::atomic<integer> unfinished_{0};
    alignas(64) std::atomic<unsigned> round_{0};
};

}  // namespace fathom::host
