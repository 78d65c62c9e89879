// CUDA's runtime on host memory: keeps every call, does copies when they are put on a stream, checks what real streams,
// events and captures allow, and tells an order_checker what touches what. Kernels do not run in it.
#pragma once

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fathom/device/cuda/runtime.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "order_checker.hpp"

namespace fathom::test::gpu {

/// cudaError_t, as far as it is given.
inline constexpr int invalid_value = 1, out_of_memory = 2, invalid_device = 101, invalid_handle = 400,
                     illegal_address = 700, capture_unsupported = 900, capture_invalidated = 901,
                     capture_unjoined = 904, capture_isolation = 905, captured_event = 907;

struct stream;

/// What a graph does, one after the other.
struct operation {
    enum class kind : unsigned char { touch, record, wait } does;
    int branch;          // the captured stream
    std::size_t record;  // which of the records before, of a wait
    const char* what;
    std::vector<cuda::access> touched;
    std::function<void()> work;
};
struct capture {
    std::vector<operation> operations;
    std::vector<order_checker::clock> seen;  // by branch
    std::vector<order_checker::clock> records;
    std::vector<stream*> streams;
    std::thread::id by = std::this_thread::get_id();
    bool over = false, invalid = false;
};
struct stream {
    int number, worker, priority;
    std::shared_ptr<capture> in;  // while it is captured
    int branch = 0;
};
struct event {
    int number;
    order_checker::clock seen;  // of what was before it
    std::shared_ptr<capture> in;
    std::size_t record = 0;
};
struct graph {
    std::shared_ptr<capture> of;
};
struct executable {
    std::shared_ptr<capture> of;
    std::vector<int> workers;  // by branch
};
struct block {
    std::size_t bytes;
    bool pinned;
};

/// The machine: what tests plant and what they look at.
struct machine {
    std::recursive_mutex mutex;
    int devices = 1, driver = 13000, version = 13000, capability = 90, device = 0;
    std::size_t unused_bytes = std::size_t{80} << 30, total_bytes = std::size_t{80} << 30;
    std::string failing;              // a call that fails next ...
    int failure = 0;                  // ... with this
    std::atomic<bool> stalls{false};  // nothing ever ends
    int pending = 0;                  // what cudaGetLastError gives next

    std::vector<std::string> calls;           // but questions
    int streams = 0, events = 0, graphs = 0;  // alive
    std::map<std::uintptr_t, block> blocks;
    order_checker order;

    /// Everything as at the start.
    void reset() {
        const std::lock_guard lock{mutex};
        devices = 1;
        driver = version = 13000;
        capability = 90;
        device = 0;
        unused_bytes = total_bytes = std::size_t{80} << 30;
        failing.clear();
        stalls = false;
        pending = 0;
        calls.clear();
        order = {};
        hosts.clear();
        null = nullptr;
        stream_numbers = event_numbers = 0;
    }

    // What the functions below stand on.
    std::map<std::thread::id, int> hosts;
    std::unique_ptr<stream> null;
    int stream_numbers = 0, event_numbers = 0;

    int host() {
        const auto [found, is_new] = hosts.try_emplace(std::this_thread::get_id(), 0);
        if (is_new) found->second = order.add(text_of("host thread ", hosts.size() - 1));
        return found->second;
    }
    stream& at(void* handle) {
        if (handle != nullptr) return *static_cast<stream*>(handle);
        if (null == nullptr) null = std::make_unique<stream>(stream{0, order.add("stream 0"), 0, nullptr});
        return *null;
    }
    /// The block that holds these bytes, or null.
    const block* holding(const void* data, std::size_t bytes) const {
        const auto first = reinterpret_cast<std::uintptr_t>(data);
        auto after = blocks.upper_bound(first);
        if (after == blocks.begin()) return nullptr;
        const auto& [start, found] = *std::prev(after);
        return first + bytes <= start + found.bytes ? &found : nullptr;
    }
    template <class... Parts> void keep(const Parts&... parts) { calls.push_back(text_of(parts...)); }
    /// Whether the named call is to fail now; else `then`.
    int result(const char* call, int then = 0) {
        if (failing != call) return then;
        failing.clear();
        return pending = failure;
    }
    bool captured_here() const {  // by this thread
        return std::any_of(open.begin(), open.end(),
                           [](const auto& one) { return one->by == std::this_thread::get_id() && !one->over; });
    }
    /// What no thread may do while it captures: it spoils the captures.
    bool spoils_capture() {
        if (!captured_here()) return false;
        for (const auto& one : open)
            if (one->by == std::this_thread::get_id()) one->invalid = true;
        return true;
    }
    std::vector<std::shared_ptr<capture>> open;

    /// Work that is put on a stream: done now, or by the graph that it becomes a part of.
    void put(stream& on, const char* what, std::vector<cuda::access> touched, std::function<void()> work = {}) {
        if (on.in != nullptr) {
            auto& mine = on.in->seen[static_cast<std::size_t>(on.branch)];
            ++mine[static_cast<std::size_t>(on.branch)];
            on.in->operations.push_back(
                {operation::kind::touch, on.branch, 0, what, std::move(touched), std::move(work)});
            return;
        }
        order.join(on.worker, order.seen_by(host()));
        order.touch(on.worker, what, touched.data(), touched.size());
        if (work) work();
    }
};
inline machine& now() {
    static machine one;
    return one;
}

/// Locks the machine for a call; a planted failure ends the call.
#define FATHOM_STAND_IN_CALL(name)       \
    machine& m = now();                  \
    const std::lock_guard lock{m.mutex}; \
    if (const int planted = m.result(name); planted != 0) return planted

inline int runtime_version(int* version) { return *version = now().version, 0; }
inline int driver_version(int* version) { return *version = now().driver, 0; }
inline int device_count(int* count) {
    FATHOM_STAND_IN_CALL("cudaGetDeviceCount");
    *count = m.devices;
    if (m.driver / 1000 < m.version / 1000) return cuda::insufficient_driver;
    return m.devices == 0 ? cuda::no_device : 0;
}
inline int set_device(int number) {
    FATHOM_STAND_IN_CALL("cudaSetDevice");
    if (number < 0 || number >= m.devices) return invalid_device;
    m.keep("cudaSetDevice ", number);
    m.device = number;
    return 0;
}
inline int device_attribute(int* value, int attribute, int) {
    FATHOM_STAND_IN_CALL("cudaDeviceGetAttribute");
    if (attribute != 75 && attribute != 76) return invalid_value;
    return *value = attribute == 75 ? m.capability / 10 : m.capability % 10, 0;
}
inline int device_properties(void* properties, int) {
    return std::snprintf(static_cast<char*>(properties), 256, "a stand-in"), 0;
}
inline int memory_info(std::size_t* unused, std::size_t* total) {
    FATHOM_STAND_IN_CALL("cudaMemGetInfo");
    return *unused = m.unused_bytes, *total = m.total_bytes, 0;
}
inline int last_error() { return std::exchange(now().pending, 0); }
inline const char* error_name(int error) {
    switch (error) {
        case invalid_value:
            return "cudaErrorInvalidValue";
        case out_of_memory:
            return "cudaErrorMemoryAllocation";
        case invalid_device:
            return "cudaErrorInvalidDevice";
        case cuda::no_kernel_image:
            return "cudaErrorNoKernelImageForDevice";
        case illegal_address:
            return "cudaErrorIllegalAddress";
        case capture_unsupported:
            return "cudaErrorStreamCaptureUnsupported";
        case capture_invalidated:
            return "cudaErrorStreamCaptureInvalidated";
        case capture_unjoined:
            return "cudaErrorStreamCaptureUnjoined";
        case capture_isolation:
            return "cudaErrorStreamCaptureIsolation";
        case captured_event:
            return "cudaErrorCapturedEvent";
        default:
            return "cudaErrorUnknown";
    }
}
inline const char* error_string(int) { return "as the stand-in was told"; }

inline int priority_range(int* least, int* greatest) { return *least = 0, *greatest = -5, 0; }
inline int stream_create(void** made, unsigned flags, int priority) {
    FATHOM_STAND_IN_CALL("cudaStreamCreateWithPriority");
    if (flags != 1) return invalid_value;  // streams that wait for the null stream are not ours
    const int number = ++m.stream_numbers;
    *made = new stream{number, m.order.add(text_of("stream ", number)), priority, nullptr};
    ++m.streams;
    m.keep("cudaStreamCreateWithPriority stream ", number, priority < 0 ? " high" : "");
    return 0;
}
inline int stream_destroy(void* handle) {
    FATHOM_STAND_IN_CALL("cudaStreamDestroy");
    delete static_cast<stream*>(handle);
    --m.streams;
    return 0;
}
inline int event_create(void** made, unsigned flags) {
    FATHOM_STAND_IN_CALL("cudaEventCreateWithFlags");
    if (flags != 2) return invalid_value;  // with timing, an event is slower
    *made = new event{++m.event_numbers, {}, nullptr};
    ++m.events;
    return 0;
}
inline int event_destroy(void* handle) {
    FATHOM_STAND_IN_CALL("cudaEventDestroy");
    delete static_cast<event*>(handle);
    --m.events;
    return 0;
}
inline int event_record(void* handle, void* on) {
    FATHOM_STAND_IN_CALL("cudaEventRecord");
    event& point = *static_cast<event*>(handle);
    stream& of = m.at(on);
    m.keep("cudaEventRecord event ", point.number, " stream ", of.number);
    point.in = of.in;
    if (of.in == nullptr) {
        m.order.join(of.worker, m.order.seen_by(m.host()));
        point.seen = m.order.seen_by(of.worker);
        return 0;
    }
    point.record = of.in->records.size();
    of.in->records.push_back(of.in->seen[static_cast<std::size_t>(of.branch)]);
    of.in->operations.push_back({operation::kind::record, of.branch, point.record, "", {}, {}});
    return 0;
}
inline int stream_wait(void* on, void* handle, unsigned) {
    FATHOM_STAND_IN_CALL("cudaStreamWaitEvent");
    const event& point = *static_cast<event*>(handle);
    stream& of = m.at(on);
    m.keep("cudaStreamWaitEvent stream ", of.number, " event ", point.number);
    if (of.in == nullptr && point.in == nullptr) {
        m.order.join(of.worker, m.order.seen_by(m.host()));
        m.order.join(of.worker, point.seen);
        return 0;
    }
    if (point.in == nullptr) {
        if (point.seen.empty()) return 0;  // never recorded
        of.in->invalid = true;
        return capture_isolation;
    }
    if (point.in->over) return captured_event;
    capture& into = *point.in;
    if (of.in == nullptr) {  // a fork
        of.in = point.in;
        of.branch = static_cast<int>(into.seen.size());
        into.streams.push_back(&of);
        into.seen.emplace_back();
        for (auto& one : into.seen) one.resize(into.seen.size());
    } else if (of.in != point.in) {
        of.in->invalid = into.invalid = true;
        return capture_isolation;
    }
    order_checker::join(into.seen[static_cast<std::size_t>(of.branch)], into.records[point.record]);
    into.operations.push_back({operation::kind::wait, of.branch, point.record, "", {}, {}});
    return 0;
}
inline int event_query(void* handle) {
    FATHOM_STAND_IN_CALL("cudaEventQuery");
    const event& point = *static_cast<event*>(handle);
    if (m.spoils_capture()) return capture_unsupported;
    if (point.in != nullptr) return captured_event;
    if (m.stalls) return cuda::not_ready;
    m.order.join(m.host(), point.seen);
    return 0;
}

/// A block of either kind, which begins at a page.
inline int take(void** made, std::size_t bytes, bool pinned) {
    machine& m = now();
    if (m.spoils_capture()) return capture_unsupported;
    if (!pinned && bytes > m.unused_bytes) return out_of_memory;
    *made = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!pinned) m.unused_bytes -= bytes;
    m.blocks[reinterpret_cast<std::uintptr_t>(*made)] = {bytes, pinned};
    m.order.forget(*made, bytes);
    m.keep(pinned ? "cudaHostAlloc " : "cudaMalloc ", bytes);
    return 0;
}
inline int give_back(void* block, bool pinned) {
    machine& m = now();
    if (block == nullptr) return 0;
    const auto found = m.blocks.find(reinterpret_cast<std::uintptr_t>(block));
    if (found == m.blocks.end() || found->second.pinned != pinned) return invalid_value;
    if (!pinned) m.unused_bytes += found->second.bytes;
    m.order.forget(block, found->second.bytes);  // real ones wait for the GPU
    m.blocks.erase(found);
    std::free(block);
    m.keep(pinned ? "cudaFreeHost" : "cudaFree");
    return 0;
}
inline int allocate(void** made, std::size_t bytes) {
    FATHOM_STAND_IN_CALL("cudaMalloc");
    return take(made, bytes, false);
}
inline int release(void* block) {
    FATHOM_STAND_IN_CALL("cudaFree");
    return give_back(block, false);
}
inline int allocate_host(void** made, std::size_t bytes, unsigned) {
    FATHOM_STAND_IN_CALL("cudaHostAlloc");
    return take(made, bytes, true);
}
inline int free_host(void* block) {
    FATHOM_STAND_IN_CALL("cudaFreeHost");
    return give_back(block, true);
}
inline int copy(void* to, const void* from, std::size_t bytes, int kind, void* on) {
    FATHOM_STAND_IN_CALL("cudaMemcpyAsync");
    constexpr int to_device = 1, to_host = 2, within_device = 3;
    if (kind < to_device || kind > within_device) return invalid_value;
    const block *const source = m.holding(from, bytes), *const target = m.holding(to, bytes);
    const auto on_device = [](const block* one) { return one != nullptr && !one->pinned; };
    if (on_device(source) != (kind != to_device) || on_device(target) != (kind != to_host)) return invalid_value;
    stream& of = m.at(on);
    m.keep("cudaMemcpyAsync ", bytes, kind == to_device ? " in" : kind == to_host ? " out" : "", " stream ", of.number);
    const auto size = static_cast<integer>(bytes);
    std::vector<cuda::access> touched;
    if (source != nullptr) touched.push_back(cuda::reads(from, size));
    if (target != nullptr) touched.push_back(cuda::writes(to, size));
    const bool pageable = source == nullptr || target == nullptr;
    if (pageable && of.in != nullptr) return of.in->invalid = true, capture_unsupported;
    m.put(of, "a copy", std::move(touched), [=] { std::memcpy(to, from, bytes); });
    if (target == nullptr) m.order.join(m.host(), m.order.seen_by(of.worker));  // returns when it is over
    return 0;
}
inline int fill(void* to, int byte, std::size_t bytes, void* on) {
    FATHOM_STAND_IN_CALL("cudaMemsetAsync");
    if (const block* const target = m.holding(to, bytes); target == nullptr || target->pinned) return invalid_value;
    m.keep("cudaMemsetAsync ", bytes, " stream ", m.at(on).number);
    m.put(m.at(on), "a fill", {cuda::writes(to, static_cast<integer>(bytes))}, [=] { std::memset(to, byte, bytes); });
    return 0;
}
/// What kernels and NCCL touch; `cuda::on_host`: the host.
inline void note(void* on, const char* what, const cuda::access* touched, std::size_t count) {
    machine& m = now();
    const std::lock_guard lock{m.mutex};
    if (on == cuda::on_host) {
        m.order.touch(m.host(), what, touched, count);
        return;
    }
    m.keep(what, " stream ", m.at(on).number);
    m.put(m.at(on), what, {touched, touched + count});
}

inline int begin_capture(void* on, int mode) {
    FATHOM_STAND_IN_CALL("cudaStreamBeginCapture");
    stream& of = m.at(on);
    if (mode != 1 || of.number == 0 || of.in != nullptr) return invalid_value;
    m.keep("cudaStreamBeginCapture stream ", of.number);
    of.in = std::make_shared<capture>();
    of.in->seen = {{0}};
    of.in->streams = {&of};
    of.branch = 0;
    m.open.push_back(of.in);
    return 0;
}
inline int end_capture(void* on, void** made) {
    FATHOM_STAND_IN_CALL("cudaStreamEndCapture");
    stream& of = m.at(on);
    *made = nullptr;
    if (of.in == nullptr || of.branch != 0) return invalid_value;
    const std::shared_ptr<capture> done = of.in;
    for (stream* const one : done->streams) one->in = nullptr;
    done->over = true;
    std::erase(m.open, done);
    m.keep("cudaStreamEndCapture stream ", of.number);
    if (done->invalid) return m.pending = capture_invalidated;
    for (std::size_t branch = 1; branch < done->seen.size(); ++branch)
        if (done->seen[0][branch] < done->seen[branch][branch]) return m.pending = capture_unjoined;
    *made = new graph{done};
    ++m.graphs;
    return 0;
}
inline int instantiate(void** made, void* from, unsigned long long) {
    FATHOM_STAND_IN_CALL("cudaGraphInstantiate");
    auto* const is = new executable{static_cast<graph*>(from)->of, {}};
    for (std::size_t branch = 0; branch < is->of->seen.size(); ++branch)
        is->workers.push_back(m.order.add(text_of("branch ", branch, " of a graph")));
    *made = is;
    ++m.graphs;
    m.keep("cudaGraphInstantiate");
    return 0;
}
inline int graph_launch(void* handle, void* on) {
    FATHOM_STAND_IN_CALL("cudaGraphLaunch");
    const executable& is = *static_cast<executable*>(handle);
    stream& of = m.at(on);
    if (of.in != nullptr) return capture_unsupported;
    m.keep("cudaGraphLaunch stream ", of.number);
    m.order.join(of.worker, m.order.seen_by(m.host()));
    for (const int worker : is.workers) m.order.join(worker, m.order.seen_by(of.worker));
    std::vector<order_checker::clock> records(is.of->records.size());
    for (const operation& one : is.of->operations) {
        const int worker = is.workers[static_cast<std::size_t>(one.branch)];
        if (one.does == operation::kind::record) {
            records[one.record] = m.order.seen_by(worker);
        } else if (one.does == operation::kind::wait) {
            m.order.join(worker, records[one.record]);
        } else {
            m.order.touch(worker, one.what, one.touched.data(), one.touched.size());
            if (one.work) one.work();
        }
    }
    for (const int worker : is.workers) m.order.join(of.worker, m.order.seen_by(worker));
    return 0;
}
inline int graph_destroy(void* handle) {
    FATHOM_STAND_IN_CALL("cudaGraphDestroy");
    return delete static_cast<graph*>(handle), --m.graphs, 0;
}
inline int executable_destroy(void* handle) {
    FATHOM_STAND_IN_CALL("cudaGraphExecDestroy");
    return delete static_cast<executable*>(handle), --m.graphs, 0;
}
#undef FATHOM_STAND_IN_CALL

/// As dlsym would find them; all but the function `missing`.
inline const char* missing = "";
inline void* find(void*, const char* name) {
    static const std::map<std::string_view, void*> all{
        {"cudaRuntimeGetVersion", reinterpret_cast<void*>(&runtime_version)},
        {"cudaDriverGetVersion", reinterpret_cast<void*>(&driver_version)},
        {"cudaGetDeviceCount", reinterpret_cast<void*>(&device_count)},
        {"cudaSetDevice", reinterpret_cast<void*>(&set_device)},
        {"cudaDeviceGetAttribute", reinterpret_cast<void*>(&device_attribute)},
        {"cudaGetDeviceProperties", reinterpret_cast<void*>(&device_properties)},
        {"cudaMemGetInfo", reinterpret_cast<void*>(&memory_info)},
        {"cudaGetLastError", reinterpret_cast<void*>(&last_error)},
        {"cudaGetErrorName", reinterpret_cast<void*>(&error_name)},
        {"cudaGetErrorString", reinterpret_cast<void*>(&error_string)},
        {"cudaDeviceGetStreamPriorityRange", reinterpret_cast<void*>(&priority_range)},
        {"cudaStreamCreateWithPriority", reinterpret_cast<void*>(&stream_create)},
        {"cudaStreamDestroy", reinterpret_cast<void*>(&stream_destroy)},
        {"cudaStreamWaitEvent", reinterpret_cast<void*>(&stream_wait)},
        {"cudaEventCreateWithFlags", reinterpret_cast<void*>(&event_create)},
        {"cudaEventDestroy", reinterpret_cast<void*>(&event_destroy)},
        {"cudaEventRecord", reinterpret_cast<void*>(&event_record)},
        {"cudaEventQuery", reinterpret_cast<void*>(&event_query)},
        {"cudaMalloc", reinterpret_cast<void*>(&allocate)},
        {"cudaFree", reinterpret_cast<void*>(&release)},
        {"cudaHostAlloc", reinterpret_cast<void*>(&allocate_host)},
        {"cudaFreeHost", reinterpret_cast<void*>(&free_host)},
        {"cudaMemcpyAsync", reinterpret_cast<void*>(&copy)},
        {"cudaMemsetAsync", reinterpret_cast<void*>(&fill)},
        {"cudaStreamBeginCapture", reinterpret_cast<void*>(&begin_capture)},
        {"cudaStreamEndCapture", reinterpret_cast<void*>(&end_capture)},
        {"cudaGraphInstantiate", reinterpret_cast<void*>(&instantiate)},
        {"cudaGraphLaunch", reinterpret_cast<void*>(&graph_launch)},
        {"cudaGraphDestroy", reinterpret_cast<void*>(&graph_destroy)},
        {"cudaGraphExecDestroy", reinterpret_cast<void*>(&executable_destroy)},
        {"fathomNoteAccesses", reinterpret_cast<void*>(&note)},
    };
    const auto found = all.find(name);
    return found == all.end() || found->first == missing ? nullptr : found->second;
}
inline shared_library library() { return {"the CUDA runtime", nullptr, &find}; }
inline const cuda::runtime& calls() {
    static const cuda::runtime once = cuda::runtime::from(library());
    return once;
}

}  // namespace fathom::test::gpu
