// The stand-in as a library that is put in the place of CUDA's runtime, for programs that load it or that nvcc has
// linked with it. Kernels are put on streams and do not run. When the program ends, calls and faults are written to the
// file that FATHOM_STAND_IN_LOG names.
//     g++ -std=c++20 -shared -fPIC -I include -o libcudart.so.13 tests/cuda/libcudart.cpp
//         -Wl,-soname,libcudart.so.13 -Wl,--version-script,tests/cuda/libcudart.map
#include <cstdio>
#include <map>

#include "stand_in.hpp"

namespace fathom::test::gpu {
namespace {

struct extent {  // dim3
    unsigned x, y, z;
};
struct launch {
    extent blocks{1, 1, 1}, threads{1, 1, 1};
    std::size_t shared_bytes = 0;
    void* on = nullptr;
};
thread_local launch next;                   // between <<<>>> and the kernel
std::map<const void*, int> allowed_shared;  // bytes, by entry

int start(const void* entry, const launch& what) {
    constexpr unsigned most_threads = 1024;
    constexpr std::size_t unasked = 48 << 10;
    constexpr int invalid_configuration = 9;
    machine& m = now();
    const std::lock_guard lock{m.mutex};
    if (const int planted = m.result("cudaLaunchKernel"); planted != 0) return planted;
    const auto asked = allowed_shared.find(entry);
    const std::size_t shared = asked == allowed_shared.end() ? unasked : static_cast<std::size_t>(asked->second);
    const extent &b = what.blocks, &t = what.threads;
    if (b.x * b.y * b.z == 0 || t.x * t.y * t.z == 0 || t.x * t.y * t.z > most_threads)
        return m.pending = invalid_configuration;
    if (what.shared_bytes > std::max(shared, unasked)) return m.pending = invalid_value;
    m.keep("launch ", b.x, " x ", t.x, ", ", what.shared_bytes, " bytes of shared memory, stream ",
           m.at(what.on).number);
    return 0;
}

/// Plants what the environment says before the first call, and writes what was seen at the end.
struct session {
    session() {
        const auto number = [](const char* name, auto& to) {
            if (const char* const text = std::getenv(name))
                to = static_cast<std::remove_reference_t<decltype(to)>>(std::atoll(text));
        };
        number("FATHOM_STAND_IN_DEVICES", now().devices);
        number("FATHOM_STAND_IN_DRIVER", now().driver);
        number("FATHOM_STAND_IN_VERSION", now().version);
        number("FATHOM_STAND_IN_CAPABILITY", now().capability);
        number("FATHOM_STAND_IN_FREE", now().unused_bytes);
    }
    session(const session&) = delete;
    session& operator=(const session&) = delete;
    ~session() {
        const char* const path = std::getenv("FATHOM_STAND_IN_LOG");
        std::FILE* const file = path != nullptr ? std::fopen(path, "w") : nullptr;
        if (file == nullptr) return;
        for (const std::string& call : now().calls) std::fprintf(file, "%s\n", call.c_str());
        for (const std::string& fault : now().order.faults) std::fprintf(file, "fault: %s\n", fault.c_str());
        std::fprintf(file, "left: %d streams, %d events, %d graphs, %zu blocks\n", now().streams, now().events,
                     now().graphs, now().blocks.size());
        std::fclose(file);
    }
};
const session whole;

}  // namespace
}  // namespace fathom::test::gpu

namespace stand_in = fathom::test::gpu;

#define FATHOM_FORWARD(name, function, parameters, arguments) \
    int name parameters { return stand_in::function arguments; }

extern "C" {
FATHOM_FORWARD(cudaRuntimeGetVersion, runtime_version, (int* version), (version))
FATHOM_FORWARD(cudaDriverGetVersion, driver_version, (int* version), (version))
FATHOM_FORWARD(cudaGetDeviceCount, device_count, (int* count), (count))
FATHOM_FORWARD(cudaSetDevice, set_device, (int number), (number))
FATHOM_FORWARD(cudaDeviceGetAttribute, device_attribute, (int* value, int which, int device), (value, which, device))
FATHOM_FORWARD(cudaGetDeviceProperties, device_properties, (void* to, int device), (to, device))
FATHOM_FORWARD(cudaMemGetInfo, memory_info, (std::size_t * unused, std::size_t* total), (unused, total))
FATHOM_FORWARD(cudaGetLastError, last_error, (), ())
const char* cudaGetErrorName(int error) { return stand_in::error_name(error); }
const char* cudaGetErrorString(int error) { return stand_in::error_string(error); }
FATHOM_FORWARD(cudaDeviceGetStreamPriorityRange, priority_range, (int* least, int* greatest), (least, greatest))
FATHOM_FORWARD(cudaStreamCreateWithPriority, stream_create, (void** made, unsigned flags, int priority),
               (made, flags, priority))
FATHOM_FORWARD(cudaStreamDestroy, stream_destroy, (void* stream), (stream))
FATHOM_FORWARD(cudaStreamWaitEvent, stream_wait, (void* stream, void* event, unsigned flags), (stream, event, flags))
FATHOM_FORWARD(cudaEventCreateWithFlags, event_create, (void** made, unsigned flags), (made, flags))
FATHOM_FORWARD(cudaEventDestroy, event_destroy, (void* event), (event))
FATHOM_FORWARD(cudaEventRecord, event_record, (void* event, void* stream), (event, stream))
FATHOM_FORWARD(cudaEventQuery, event_query, (void* event), (event))
FATHOM_FORWARD(cudaMalloc, allocate, (void** made, std::size_t bytes), (made, bytes))
FATHOM_FORWARD(cudaFree, release, (void* block), (block))
FATHOM_FORWARD(cudaHostAlloc, allocate_host, (void** made, std::size_t bytes, unsigned flags), (made, bytes, flags))
FATHOM_FORWARD(cudaFreeHost, free_host, (void* block), (block))
FATHOM_FORWARD(cudaMemcpyAsync, copy, (void* to, const void* from, std::size_t bytes, int kind, void* stream),
               (to, from, bytes, kind, stream))
FATHOM_FORWARD(cudaMemsetAsync, fill, (void* to, int byte, std::size_t bytes, void* stream), (to, byte, bytes, stream))
FATHOM_FORWARD(cudaStreamBeginCapture, begin_capture, (void* stream, int mode), (stream, mode))
FATHOM_FORWARD(cudaStreamEndCapture, end_capture, (void* stream, void** graph), (stream, graph))
FATHOM_FORWARD(cudaGraphInstantiate, instantiate, (void** made, void* graph, unsigned long long flags),
               (made, graph, flags))
FATHOM_FORWARD(cudaGraphLaunch, graph_launch, (void* executable, void* stream), (executable, stream))
FATHOM_FORWARD(cudaGraphDestroy, graph_destroy, (void* graph), (graph))
FATHOM_FORWARD(cudaGraphExecDestroy, executable_destroy, (void* executable), (executable))
void fathomNoteAccesses(void* on, const char* what, const fathom::cuda::access* touched, std::size_t count) {
    stand_in::note(on, what, touched, count);
}

// What nvcc's code calls by itself.
void** __cudaRegisterFatBinary(void*) {
    static void* handle = nullptr;
    return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*) {}
unsigned __cudaPushCallConfiguration(stand_in::extent blocks, stand_in::extent threads, std::size_t shared, void* on) {
    return stand_in::next = {blocks, threads, shared, on}, 0;
}
int __cudaPopCallConfiguration(stand_in::extent* blocks, stand_in::extent* threads, std::size_t* shared, void* on) {
    *blocks = stand_in::next.blocks;
    *threads = stand_in::next.threads;
    *shared = stand_in::next.shared_bytes;
    *static_cast<void**>(on) = stand_in::next.on;
    return 0;
}
int __cudaGetKernel(const void** kernel, const void* entry) { return *kernel = entry, 0; }
int __cudaLaunchKernel(const void* kernel, stand_in::extent blocks, stand_in::extent threads, void**,
                       std::size_t shared, void* on) {
    return stand_in::start(kernel, {blocks, threads, shared, on});
}
int cudaLaunchKernel(const void* entry, stand_in::extent blocks, stand_in::extent threads, void**, std::size_t shared,
                     void* on) {
    return stand_in::start(entry, {blocks, threads, shared, on});
}
int cudaFuncSetAttribute(const void* entry, int attribute, int value) {
    constexpr int most_dynamic_shared_memory = 8, most = 227 << 10;
    if (attribute != most_dynamic_shared_memory || value > most)
        return stand_in::now().pending = stand_in::invalid_value;
    return stand_in::allowed_shared[entry] = value, 0;
}
}
