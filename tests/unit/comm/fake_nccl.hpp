// NCCL on host memory, for ranks that are threads of one process: what the real library promises, done at once where it
// would do it later. Tells CUDA's stand-in what each call touches. Faults are planted by `fake::world`.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <fathom/comm/nccl/communicator.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../../cuda/stand_in.hpp"

namespace fathom::test::fake {

inline constexpr int failed = 3, remote_error = 6;  // ncclInternalError, ncclRemoteError

/// Ranks that meet: a round of a collective ends when all have come with their arguments.
struct meeting {
    explicit meeting(int ranks) : size(ranks), given(static_cast<std::size_t>(ranks)) {}

    struct part {
        const void* data;
        int colour, key;
    };
    int size, came = 0, worked = 0, left = 0, joined = 0;
    bool leaving = false;
    std::vector<part> given;
    std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> mail;  // from, to
    std::map<int, std::shared_ptr<meeting>> parts;                           // of a split, by colour
    std::mutex mutex;
    std::condition_variable changed;

    /// Calls `work(parts of all)` on each rank when all have come; leaves when all have worked.
    template <class Work> void round(int rank, part mine, Work&& work) {
        std::unique_lock lock{mutex};
        changed.wait(lock, [&] { return left == 0; });
        given[static_cast<std::size_t>(rank)] = mine;
        if (++came == size) {
            left = size;
            changed.notify_all();
        }
        changed.wait(lock, [&] { return left > 0; });
        work(given);
        ++worked;
        changed.notify_all();
        changed.wait(lock, [&] { return worked == size || leaving; });
        leaving = true;
        if (--left == 0) {
            came = worked = 0;
            leaving = false;
        }
        changed.notify_all();
    }
};

struct communicator {
    std::shared_ptr<meeting> of;
    int rank;
    std::string made_with;  // NCCL_ALGO and NCCL_PROTO
};

/// Everything that tests look at and plant.
struct world {
    std::atomic<bool> never_starts{false};  // communicators are never made
    std::atomic<int> fault{0};              // what an operation under way has come to
    std::atomic<int> version{22800};
    std::atomic<int> made{0}, aborted{0}, destroyed{0};
    std::atomic<int> in_groups{0}, outside_groups{0};
    std::mutex mutex;
    std::map<std::string, std::shared_ptr<meeting>> meetings;  // by id
    std::vector<std::string> used;                             // what collectives of rank 0 were made with
};
inline world& now() {
    static world one;
    return one;
}

inline integer width_of(int format) {
    for (const comm::element each : {comm::element::fp64, comm::element::fp32, comm::element::bf16,
                                     comm::element::int64, comm::element::int32, comm::element::byte})
        if (comm::nccl::detail::format_of(each) == format) return comm::bytes_of(each);
    return 0;
}
inline communicator& at(void* comm) { return *static_cast<communicator*>(comm); }

inline void* new_communicator(std::shared_ptr<meeting> of, int rank) {
    const char *algorithm = std::getenv("NCCL_ALGO"), *protocol = std::getenv("NCCL_PROTO");
    ++now().made;
    return new communicator{std::move(of), rank,
                            text_of(algorithm != nullptr ? algorithm : "-", ' ', protocol != nullptr ? protocol : "-")};
}
inline int get_version(int* version) { return *version = now().version, 0; }
inline int get_unique_id(comm::nccl::unique_id* id) {
    static std::atomic<int> ids{0};
    std::snprintf(id->bytes, sizeof id->bytes, "fake %d", ids++);
    return 0;
}
inline int init(void** comm, int ranks, comm::nccl::unique_id id, int rank, comm::nccl::configuration*) {
    if (now().never_starts) {
        *comm = new_communicator(std::make_shared<meeting>(ranks), rank);
        return comm::nccl::in_progress;
    }
    const std::lock_guard lock{now().mutex};
    auto& of = now().meetings[id.bytes];
    if (of == nullptr) of = std::make_shared<meeting>(ranks);
    *comm = new_communicator(of, rank);
    return 0;
}
inline int split(void* comm, int colour, int key, void** made, comm::nccl::configuration*) {
    communicator& whole = at(comm);
    const meeting::part mine{nullptr, colour, key};
    whole.of->round(whole.rank, mine, [&](const std::vector<meeting::part>& all) {
        int size = 0, rank = 0;
        for (int other = 0; other < whole.of->size; ++other) {
            const meeting::part& theirs = all[static_cast<std::size_t>(other)];
            if (theirs.colour != colour) continue;
            ++size;
            rank += theirs.key < key || (theirs.key == key && other < whole.rank);
        }
        // The first of a colour in this round makes the meeting, the last forgets it.
        auto& part = whole.of->parts[colour];
        if (part == nullptr) part = std::make_shared<meeting>(size);
        *made = new_communicator(part, rank);
        if (++part->joined == size) whole.of->parts.erase(colour);
    });
    return 0;
}
inline int finalize(void*) { return 0; }
inline int destroy(void* comm) { return delete static_cast<communicator*>(comm), ++now().destroyed, 0; }
inline int abort(void* comm) { return delete static_cast<communicator*>(comm), ++now().aborted, 0; }
inline int async_error(void*, int* result) {
    *result = now().never_starts ? comm::nccl::in_progress : now().fault.load();
    return 0;
}
inline int count(void* comm, int* size) { return *size = at(comm).of->size, 0; }
inline int user_rank(void* comm, int* rank) { return *rank = at(comm).rank, 0; }
inline const char* error_string(int result) { return result == remote_error ? "remote process exited" : "an error"; }
inline const char* last_error(void*) { return "peer gone"; }

/// What a rank's result is, from all ranks' data, computed before anyone writes. `what`: its name, what it reads and
/// what it writes.
struct called {
    const char* name;
    void* comm;
    void* stream;
    const void* data;
    integer read;
    void* to;
    integer written;
};
template <class Result> int collective(const called& what, Result&& result) {
    communicator& me = at(what.comm);
    const cuda::access touched[] = {cuda::reads(what.data, what.read), cuda::writes(what.to, what.written)};
    gpu::note(what.stream, what.name, touched, 2);
    if (gpu::now().stalls) return 0;
    if (me.rank == 0) {
        const std::lock_guard lock{now().mutex};
        now().used.push_back(me.made_with);
    }
    std::vector<std::byte> made(static_cast<std::size_t>(what.written));
    me.of->round(me.rank, {what.data, 0, 0}, [&](const std::vector<meeting::part>& all) { result(made.data(), all); });
    if (what.written > 0) std::memcpy(what.to, made.data(), made.size());
    return 0;
}

template <class T>
void reduce(void* to, const std::vector<meeting::part>& all, std::size_t first, std::size_t count, int how) {
    using sum = std::conditional_t<std::is_same_v<T, bf16>, float, T>;
    for (std::size_t i = 0; i < count; ++i) {
        sum total{};
        for (std::size_t rank = 0; rank < all.size(); ++rank) {
            const sum next = static_cast<sum>(static_cast<const T*>(all[rank].data)[first + i]);
            if (rank == 0)
                total = next;
            else
                total = how == 0 ? static_cast<sum>(total + next) : (next > total ? next : total);
        }
        static_cast<T*>(to)[i] = static_cast<T>(total);
    }
}
inline void reduce_any(int format, void* to, const std::vector<meeting::part>& all, std::size_t first,
                       std::size_t count, int how) {
    switch (format) {
        case 8:
            return reduce<double>(to, all, first, count, how);
        case 7:
            return reduce<float>(to, all, first, count, how);
        case 9:
            return reduce<bf16>(to, all, first, count, how);
        case 4:
            return reduce<std::int64_t>(to, all, first, count, how);
        case 2:
            return reduce<std::int32_t>(to, all, first, count, how);
        case 1:
            return reduce<unsigned char>(to, all, first, count, how);
        default:
            break;
    }
}
inline int all_reduce(const void* in, void* out, std::size_t n, int format, int how, void* comm, void* stream) {
    const integer bytes = static_cast<integer>(n) * width_of(format);
    return collective({"ncclAllReduce", comm, stream, in, bytes, out, bytes},
                      [&](void* to, const auto& all) { reduce_any(format, to, all, 0, n, how); });
}
inline int reduce_scatter(const void* in, void* out, std::size_t n, int format, int how, void* comm, void* stream) {
    const std::size_t first = static_cast<std::size_t>(at(comm).rank) * n;
    const integer bytes = static_cast<integer>(n) * width_of(format);
    return collective({"ncclReduceScatter", comm, stream, in, at(comm).of->size * bytes, out, bytes},
                      [&](void* to, const auto& all) { reduce_any(format, to, all, first, n, how); });
}
inline int all_gather(const void* in, void* out, std::size_t n, int format, void* comm, void* stream) {
    const std::size_t bytes = n * static_cast<std::size_t>(width_of(format));
    const auto part = static_cast<integer>(bytes);
    return collective({"ncclAllGather", comm, stream, in, part, out, at(comm).of->size * part},
                      [&](std::byte* to, const auto& all) {
                          for (std::size_t rank = 0; bytes > 0 && rank < all.size(); ++rank)
                              std::memcpy(to + rank * bytes, all[rank].data, bytes);
                      });
}
inline int broadcast(const void* in, void* out, std::size_t n, int format, int root, void* comm, void* stream) {
    const std::size_t bytes = n * static_cast<std::size_t>(width_of(format));
    const auto size = static_cast<integer>(bytes);
    return collective({"ncclBroadcast", comm, stream, in, size, out, size}, [&](std::byte* to, const auto& all) {
        if (bytes > 0) std::memcpy(to, all[static_cast<std::size_t>(root)].data, bytes);
    });
}

/// Messages of a group move when it ends: sends first, so that no order among them matters.
struct posted {
    bool sends;
    void* data;
    std::size_t bytes;
    int peer;
    void* comm;
    void* stream;
};
inline thread_local std::vector<posted> group;
inline thread_local int depth = 0;

inline int post(posted what) {
    ++(depth > 0 ? now().in_groups : now().outside_groups);
    group.push_back(what);
    return 0;
}
inline int send(const void* data, std::size_t n, int format, int peer, void* comm, void* stream) {
    return post({true, const_cast<void*>(data), n * static_cast<std::size_t>(width_of(format)), peer, comm, stream});
}
inline int receive(void* data, std::size_t n, int format, int peer, void* comm, void* stream) {
    return post({false, data, n * static_cast<std::size_t>(width_of(format)), peer, comm, stream});
}
inline int group_start() { return ++depth, 0; }
inline int group_end() {
    if (--depth > 0) return 0;
    const std::vector<posted> all = std::move(group);
    group.clear();
    for (const posted& one : all) {
        const auto bytes = static_cast<integer>(one.bytes);
        const cuda::access touched = one.sends ? cuda::reads(one.data, bytes) : cuda::writes(one.data, bytes);
        gpu::note(one.stream, one.sends ? "ncclSend" : "ncclRecv", &touched, 1);
    }
    if (gpu::now().stalls) return 0;
    for (const bool sends : {true, false}) {
        for (const posted& one : all) {
            if (one.sends != sends) continue;
            communicator& me = at(one.comm);
            std::unique_lock lock{me.of->mutex};
            if (sends) {
                const auto* const from = static_cast<const std::byte*>(one.data);
                me.of->mail[{me.rank, one.peer}].emplace_back(from, from + one.bytes);
                me.of->changed.notify_all();
                continue;
            }
            auto& box = me.of->mail[{one.peer, me.rank}];
            me.of->changed.wait(lock, [&] { return !box.empty(); });
            if (box.front().size() != one.bytes) return failed;
            std::memcpy(one.data, box.front().data(), one.bytes);
            box.pop_front();
        }
    }
    return 0;
}

/// As dlsym would find them; all but the function `missing`.
inline const char* missing = "";
inline void* find(void*, const char* name) {
    const std::map<std::string, void*> all{
        {"ncclGetVersion", reinterpret_cast<void*>(&get_version)},
        {"ncclGetUniqueId", reinterpret_cast<void*>(&get_unique_id)},
        {"ncclCommInitRankConfig", reinterpret_cast<void*>(&init)},
        {"ncclCommSplit", reinterpret_cast<void*>(&split)},
        {"ncclCommFinalize", reinterpret_cast<void*>(&finalize)},
        {"ncclCommDestroy", reinterpret_cast<void*>(&destroy)},
        {"ncclCommAbort", reinterpret_cast<void*>(&abort)},
        {"ncclCommGetAsyncError", reinterpret_cast<void*>(&async_error)},
        {"ncclCommCount", reinterpret_cast<void*>(&count)},
        {"ncclCommUserRank", reinterpret_cast<void*>(&user_rank)},
        {"ncclGetErrorString", reinterpret_cast<void*>(&error_string)},
        {"ncclGetLastError", reinterpret_cast<void*>(&last_error)},
        {"ncclAllReduce", reinterpret_cast<void*>(&all_reduce)},
        {"ncclReduceScatter", reinterpret_cast<void*>(&reduce_scatter)},
        {"ncclAllGather", reinterpret_cast<void*>(&all_gather)},
        {"ncclBroadcast", reinterpret_cast<void*>(&broadcast)},
        {"ncclSend", reinterpret_cast<void*>(&send)},
        {"ncclRecv", reinterpret_cast<void*>(&receive)},
        {"ncclGroupStart", reinterpret_cast<void*>(&group_start)},
        {"ncclGroupEnd", reinterpret_cast<void*>(&group_end)},
    };
    const auto found = all.find(name);
    return found == all.end() || found->first == missing ? nullptr : found->second;
}
inline shared_library library() { return {"NCCL", nullptr, &find}; }
inline const comm::nccl::functions& calls() {
    static const comm::nccl::functions once{comm::nccl::library::from(library()), gpu::calls()};
    return once;
}

}  // namespace fathom::test::fake
