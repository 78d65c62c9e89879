// Where work for a GPU is put: it runs later, in the order of its stream; the names are those that the host's queue has
// too.
#pragma once

#include <fathom/device/cuda/event.hpp>
#include <fathom/device/cuda/readback.hpp>
#include <initializer_list>
#include <type_traits>

namespace fathom::cuda {

/// A stream of a GPU, owned by another (`cuda::stream`, or somebody's cudaStream_t). Memory is the GPU's except
/// where it says host. Errors of every call: what CUDA says, with the call and the last kernels.
struct queue {
    gpu* of = nullptr;
    void* stream = nullptr;

    /// Calls `launch(stream)`, which puts a kernel of that name on the stream. `touched`: all memory that it reads or
    /// writes.
    template <class Launch>
    void enqueue(const char* kernel, std::initializer_list<access> touched, Launch&& launch) const {
        launch(stream);
        of->remember(kernel);
        of->check(of->calls().last_error(), kernel);
        note(kernel, touched.begin(), touched.size());
    }

    /// A point behind all that was put here.
    [[nodiscard]] event record() const {
        event made{*of, of->take_event()};
        of->check(of->calls().event_record(made.handle(), stream), "cudaEventRecord");
        return made;
    }
    /// What is put here from now on runs after the point.
    void wait(const event& point) const {
        of->check(of->calls().stream_wait(stream, point.handle(), 0), "cudaStreamWaitEvent");
    }
    /// The host waits until all that was put here is over.
    void finish() const { record().wait(); }

    /// A copy of `count` numbers for the host, as they are at this point of the queue; at most `gpu::slot_bytes`.
    template <class T> [[nodiscard]] readback<T> read(const T* values, integer count = 1) const {
        static_assert(std::is_trivially_copyable_v<T>, "fathom: what is read back is copied as bytes.");
        const integer bytes = count * static_cast<integer>(sizeof(T));
        if (bytes > gpu::slot_bytes)
            fail(of->name(), ": a readback has ", bytes, " bytes, expected at most ", gpu::slot_bytes,
                 ": copy_out to pinned memory of one's own");
        gpu::slot& to = of->take_slot();
        readback<T> made{*of, to, count};
        // The slot's last copy may have been put on another stream.
        of->check(of->calls().stream_wait(stream, to.event, 0), "cudaStreamWaitEvent");
        copy_out(to.data, values, bytes);
        of->check(of->calls().event_record(to.event, stream), "cudaEventRecord");
        return made;
    }

    void copy(void* to, const void* from, integer bytes) const { copy(to, from, bytes, 3); }
    /// From host memory: what is not pinned may be written again at once, what is pinned when the copy is over.
    void copy_in(void* to, const void* host, integer bytes) const { copy(to, host, bytes, 1); }
    /// To host memory: there when the host has waited for the copy.
    void copy_out(void* host, const void* from, integer bytes) const { copy(host, from, bytes, 2); }
    void fill(void* to, unsigned char byte, integer bytes) const {
        if (bytes == 0) return;
        of->check(of->calls().fill(to, byte, static_cast<std::size_t>(bytes), stream), "cudaMemsetAsync");
    }

    /// Tells a stand-in what the last work touches.
    void note(const char* what, const access* touched, std::size_t count) const {
        if (of->calls().note != nullptr) of->calls().note(stream, what, touched, count);
    }

  private:
    void copy(void* to, const void* from, integer bytes, int kind) const {
        if (bytes == 0) return;
        of->check(of->calls().copy(to, from, static_cast<std::size_t>(bytes), kind, stream), "cudaMemcpyAsync");
    }
};

}  // namespace fathom::cuda
