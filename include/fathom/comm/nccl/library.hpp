// NCCL and the CUDA runtime as tables of functions, loaded when they are first used: a program runs where they are
// absent, compiles without their headers, and tests put functions of their own in their place.
#pragma once

#include <dlfcn.h>

#include <climits>
#include <cstddef>
#include <fathom/core/bytes.hpp>
#include <fathom/core/error.hpp>
#include <initializer_list>

namespace fathom::comm::nccl {

/// ncclUniqueId: what one rank makes and all ranks of a communicator need.
struct unique_id {
    char bytes[128];
};

/// ncclConfig_t as of NCCL 2.18, whose size and version later ones take for what they are.
struct configuration {
    static constexpr int unset = INT_MIN;
    std::size_t size = sizeof(configuration);
    unsigned magic = 0xcafebeef, version = 21800;
    int blocking = unset, cga_cluster_size = unset, min_ctas = unset, max_ctas = unset;
    const char* net_name = nullptr;
    int split_share = unset;
};

/// ncclResult_t, as far as it is told apart.
inline constexpr int success = 0, in_progress = 7;
/// cudaError_t, likewise.
inline constexpr int not_ready = 600;

/// The address of a function by its name, or null.
using finder = void* (*)(void* library, const char* name);

namespace detail {

template <class Function> void take(Function*& slot, finder find, void* from, const char* library, const char* name) {
    slot = reinterpret_cast<Function*>(find(from, name));
    if (slot == nullptr) fail(library, " has no function ", name, ", expected a later version");
}

/// The process itself if it has the function already, else the first of the files that loads.
inline void* opened(const char* what, const char* function, std::initializer_list<const char*> files) {
    if (dlsym(RTLD_DEFAULT, function) != nullptr) return RTLD_DEFAULT;
    const char* first = nullptr;
    for (const char* const file : files) {
        if (void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL)) return library;
        const char* const why = dlerror();
        if (first == nullptr) first = why;
    }
    fail(what, " cannot be loaded: found ", first != nullptr ? first : "no reason", "; expected ", *files.begin(),
         " in a folder of the system or of LD_LIBRARY_PATH");
}

}  // namespace detail

/// NCCL's functions. Communicators and streams are what their headers' pointers convert to.
struct library {
    using collective = int(const void*, void*, std::size_t, int format, void* comm, void* stream);

    int (*get_version)(int*);
    int (*get_unique_id)(unique_id*);
    int (*init)(void** comm, int ranks, unique_id, int rank, configuration*);
    int (*split)(void* comm, int colour, int key, void** made, configuration*);
    int (*finalize)(void*);
    int (*destroy)(void*);
    int (*abort)(void*);
    int (*async_error)(void*, int*);
    int (*count)(void*, int*);
    int (*user_rank)(void*, int*);
    const char* (*error_string)(int);
    const char* (*last_error)(void*);
    int (*all_reduce)(const void*, void*, std::size_t, int format, int how, void* comm, void* stream);
    int (*reduce_scatter)(const void*, void*, std::size_t, int format, int how, void* comm, void* stream);
    collective* all_gather;
    int (*broadcast)(const void*, void*, std::size_t, int format, int root, void* comm, void* stream);
    int (*send)(const void*, std::size_t, int format, int peer, void* comm, void* stream);
    int (*receive)(void*, std::size_t, int format, int peer, void* comm, void* stream);
    int (*group_start)();
    int (*group_end)();

    /// Errors: a function that is missing; a version before 2.18.
    static library from(void* opened, finder find = &dlsym) {
        library made{};
        const auto take = [&](auto& slot, const char* name) { detail::take(slot, find, opened, "NCCL", name); };
        take(made.get_version, "ncclGetVersion");
        constexpr int oldest = 21800;
        int version = 0;
        if (made.get_version(&version) != success || version < oldest)
            fail("NCCL: found version ", version / 10000, '.', version / 100 % 100, ", expected 2.18 or later");
        take(made.get_unique_id, "ncclGetUniqueId");
        take(made.init, "ncclCommInitRankConfig");
        take(made.split, "ncclCommSplit");
        take(made.finalize, "ncclCommFinalize");
        take(made.destroy, "ncclCommDestroy");
        take(made.abort, "ncclCommAbort");
        take(made.async_error, "ncclCommGetAsyncError");
        take(made.count, "ncclCommCount");
        take(made.user_rank, "ncclCommUserRank");
        take(made.error_string, "ncclGetErrorString");
        take(made.last_error, "ncclGetLastError");
        take(made.all_reduce, "ncclAllReduce");
        take(made.reduce_scatter, "ncclReduceScatter");
        take(made.all_gather, "ncclAllGather");
        take(made.broadcast, "ncclBroadcast");
        take(made.send, "ncclSend");
        take(made.receive, "ncclRecv");
        take(made.group_start, "ncclGroupStart");
        take(made.group_end, "ncclGroupEnd");
        return made;
    }
};

/// The few functions of the CUDA runtime that order streams.
struct cuda_runtime {
    int (*set_device)(int);
    int (*stream_create)(void** stream, unsigned flags);
    int (*stream_destroy)(void*);
    int (*stream_wait)(void* stream, void* event, unsigned flags);
    int (*event_create)(void** event, unsigned flags);
    int (*event_destroy)(void*);
    int (*event_record)(void* event, void* stream);
    int (*event_query)(void*);
    int (*allocate)(void** memory, std::size_t bytes);
    int (*free)(void*);
    const char* (*error_string)(int);

    /// Errors: a function that is missing.
    static cuda_runtime from(void* opened, finder find = &dlsym) {
        cuda_runtime made{};
        const auto take = [&](auto& slot, const char* name) {
            detail::take(slot, find, opened, "the CUDA runtime", name);
        };
        take(made.set_device, "cudaSetDevice");
        take(made.stream_create, "cudaStreamCreateWithFlags");
        take(made.stream_destroy, "cudaStreamDestroy");
        take(made.stream_wait, "cudaStreamWaitEvent");
        take(made.event_create, "cudaEventCreateWithFlags");
        take(made.event_destroy, "cudaEventDestroy");
        take(made.event_record, "cudaEventRecord");
        take(made.event_query, "cudaEventQuery");
        take(made.allocate, "cudaMalloc");
        take(made.free, "cudaFree");
        take(made.error_string, "cudaGetErrorString");
        return made;
    }
};

/// Both.
struct functions {
    library nccl;
    cuda_runtime cuda;

    /// Those of this machine, loaded by the first call. Errors: what cannot be loaded, and why.
    static const functions& loaded() {
        static const functions once{
            library::from(detail::opened("NCCL", "ncclGetVersion", {"libnccl.so.2"})),
            cuda_runtime::from(detail::opened("the CUDA runtime", "cudaEventQuery",
                                              {"libcudart.so", "libcudart.so.13", "libcudart.so.12"}))};
        return once;
    }
};

}  // namespace fathom::comm::nccl
