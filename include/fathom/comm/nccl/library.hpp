// NCCL as a table of functions, loaded when it is first used, beside CUDA's runtime.
#pragma once

#include <climits>
#include <cstddef>
#include <fathom/core/shared_library.hpp>
#include <fathom/device/cuda/runtime.hpp>

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
    static library from(const shared_library& opened) {
        library made{};
        const auto take = [&](auto& slot, const char* name) { opened.take(slot, name); };
        take(made.get_version, "ncclGetVersion");
        constexpr int oldest = 21800;
        int version = 0;
        if (made.get_version(&version) != success || version < oldest)
            fail(opened.name, ": found version ", version / 10000, '.', version / 100 % 100,
                 ", expected 2.18 or later");
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

/// Both.
struct functions {
    library nccl;
    fathom::cuda::runtime cuda;

    /// Those of this machine, loaded by the first call. Errors: what cannot be loaded, and why.
    static const functions& loaded() {
        static const functions once{library::from(shared_library::open("NCCL", "ncclGetVersion", {"libnccl.so.2"})),
                                    fathom::cuda::runtime::loaded()};
        return once;
    }
};

}  // namespace fathom::comm::nccl
