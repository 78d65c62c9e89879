// CUDA's runtime as a table of the functions that are used, loaded when first asked for: without CUDA's headers, and
// with a stand-in in tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fathom/core/shared_library.hpp>
#include <fathom/device/cuda/access.hpp>

namespace fathom::cuda {

/// cudaError_t, as far as it is told apart.
inline constexpr int success = 0, insufficient_driver = 35, no_device = 100, no_kernel_image = 209, not_ready = 600;

/// The functions, as CUDA 12 and 13 have them. Streams, events and graphs are what their headers' pointers convert to.
struct runtime {
    int (*runtime_version)(int*);
    int (*driver_version)(int*);
    int (*device_count)(int*);
    int (*set_device)(int);
    int (*device_attribute)(int* value, int attribute, int device);
    int (*device_properties)(void* properties, int device);
    int (*memory_info)(std::size_t* unused, std::size_t* total);
    int (*last_error)();
    const char* (*error_name)(int);
    const char* (*error_string)(int);

    int (*priority_range)(int* least, int* greatest);
    int (*stream_create)(void** stream, unsigned flags, int priority);
    int (*stream_destroy)(void*);
    int (*stream_wait)(void* stream, void* event, unsigned flags);
    int (*event_create)(void** event, unsigned flags);
    int (*event_destroy)(void*);
    int (*event_record)(void* event, void* stream);
    int (*event_query)(void*);

    int (*allocate)(void** memory, std::size_t bytes);
    int (*free)(void*);
    int (*allocate_host)(void** memory, std::size_t bytes, unsigned flags);
    int (*free_host)(void*);
    int (*copy)(void* to, const void* from, std::size_t bytes, int kind, void* stream);
    int (*fill)(void* to, int byte, std::size_t bytes, void* stream);

    int (*begin_capture)(void* stream, int mode);
    int (*end_capture)(void* stream, void** graph);
    int (*instantiate)(void** executable, void* graph, unsigned long long flags);
    int (*graph_launch)(void* executable, void* stream);
    int (*graph_destroy)(void*);
    int (*executable_destroy)(void*);

    /// Only stand-ins have it: hears what the work that was just put on a stream touches, or the host (`on_host`).
    void (*note)(void* stream, const char* what, const access* touched, std::size_t count);

    /// Errors: a function that is missing; a version that is neither 12 nor 13.
    [[nodiscard]] static runtime from(const shared_library& library) {
        runtime made{};
        library.take(made.runtime_version, "cudaRuntimeGetVersion");
        int version = 0;
        if (made.runtime_version(&version) != success || version < 12000 || version >= 14000)
            fail(library.name, ": found version ", version / 1000, '.', version % 1000 / 10, ", expected 12 or 13");
        library.take(made.driver_version, "cudaDriverGetVersion");
        library.take(made.device_count, "cudaGetDeviceCount");
        library.take(made.set_device, "cudaSetDevice");
        library.take(made.device_attribute, "cudaDeviceGetAttribute");
        library.take(made.device_properties, "cudaGetDeviceProperties");
        library.take(made.memory_info, "cudaMemGetInfo");
        library.take(made.last_error, "cudaGetLastError");
        library.take(made.error_name, "cudaGetErrorName");
        library.take(made.error_string, "cudaGetErrorString");
        library.take(made.priority_range, "cudaDeviceGetStreamPriorityRange");
        library.take(made.stream_create, "cudaStreamCreateWithPriority");
        library.take(made.stream_destroy, "cudaStreamDestroy");
        library.take(made.stream_wait, "cudaStreamWaitEvent");
        library.take(made.event_create, "cudaEventCreateWithFlags");
        library.take(made.event_destroy, "cudaEventDestroy");
        library.take(made.event_record, "cudaEventRecord");
        library.take(made.event_query, "cudaEventQuery");
        library.take(made.allocate, "cudaMalloc");
        library.take(made.free, "cudaFree");
        library.take(made.allocate_host, "cudaHostAlloc");
        library.take(made.free_host, "cudaFreeHost");
        library.take(made.copy, "cudaMemcpyAsync");
        library.take(made.fill, "cudaMemsetAsync");
        library.take(made.begin_capture, "cudaStreamBeginCapture");
        library.take(made.end_capture, "cudaStreamEndCapture");
        library.take(made.instantiate, "cudaGraphInstantiate");
        library.take(made.graph_launch, "cudaGraphLaunch");
        library.take(made.graph_destroy, "cudaGraphDestroy");
        library.take(made.executable_destroy, "cudaGraphExecDestroy");
        library.take_if_there(made.note, "fathomNoteAccesses");
        return made;
    }

    /// The runtime that the program is linked with, or else this machine's, loaded by the first call. Errors: it cannot
    /// be loaded, and why; those of `from`.
    [[nodiscard]] static const runtime& loaded() {
        static const runtime once = from(shared_library::open("the CUDA runtime", "cudaRuntimeGetVersion",
                                                              {"libcudart.so.13", "libcudart.so.12", "libcudart.so"}));
        return once;
    }
};

/// For `runtime::note`: the host itself, at once.
inline void* const on_host = reinterpret_cast<void*>(~std::uintptr_t{0});

}  // namespace fathom::cuda
