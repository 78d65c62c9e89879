// One rank's GPU: chosen and checked before anything is put on it, and what says which call and which kernels an error
// came after.
#pragma once

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fathom/core/seconds_now.hpp>
#include <fathom/device/cuda/runtime.hpp>
#include <span>
#include <string>
#include <vector>

namespace fathom::cuda {

/// Holds the events and the pinned memory for readbacks that queues of this GPU use: made at the start, outlives them,
/// and is used by one thread.
class gpu {
  public:
    /// A piece of pinned memory that one readback has.
    struct slot {
        std::byte* data;
        void* event;  // recorded behind the last copy to it
        bool held;
    };
    static constexpr integer slots_count = 64, slot_bytes = 4096;

    /// The GPU with the number of the rank on its machine, among those that CUDA_VISIBLE_DEVICES leaves; where a rank
    /// sees a single one by that variable, this one. It becomes the thread's. `built_for`: compute capabilities of the
    /// kernels' code, 900 for sm_90 (`cuda::built_for`); empty: not looked at. `limit`: seconds that the host waits for
    /// the GPU at most. Errors: no driver, or one that is too old for the runtime; no GPU, or fewer than ranks here; a
    /// GPU that the kernels are not built for.
    explicit gpu(integer local_rank = 0, std::span<const int> built_for = {}, const runtime& calls = runtime::loaded(),
                 double limit = 600)
        : calls_(&calls), limit_(limit) {
        choose(local_rank);
        look_at(built_for);
        check(calls_->set_device(static_cast<int>(number_)), "cudaSetDevice");
        for (integer n = 0; n < 2 * slots_count; ++n) unused_.push_back(new_event());
        void* pinned = nullptr;
        check(calls_->allocate_host(&pinned, slots_count * slot_bytes, 0), "cudaHostAlloc");
        for (integer n = 0; n < slots_count; ++n)
            slots_[static_cast<std::size_t>(n)] = {static_cast<std::byte*>(pinned) + n * slot_bytes, new_event(),
                                                   false};
    }
    gpu(const gpu&) = delete;
    gpu& operator=(const gpu&) = delete;
    ~gpu() {
        if (slots_[0].data != nullptr) calls_->free_host(slots_[0].data);
        for (void* const event : events_) calls_->event_destroy(event);
    }

    [[nodiscard]] const runtime& calls() const { return *calls_; }
    [[nodiscard]] integer number() const { return number_; }
    /// 900 for sm_90.
    [[nodiscard]] int capability() const { return capability_; }
    /// Such as "GPU 0 (NVIDIA H200)".
    [[nodiscard]] const std::string& name() const { return name_; }

    /// Throws what a call of CUDA came to, if it is an error, with the last kernels that were put to work: one of them
    /// may be at fault, since the GPU runs later.
    void check(int status, const char* call) const {
        if (status != success) refuse(status, call);
    }
    /// Notes that a kernel was put on a stream, under a name that lives as long as the program.
    void remember(const char* kernel) { last_[remembered_++ % last_.size()] = kernel; }
    /// The last kernels, the newest last, as an error ends with them.
    [[nodiscard]] std::string last_kernels() const {
        if (remembered_ == 0) return "";
        std::string text = "; the last kernels put to work were";
        const std::size_t first = remembered_ < last_.size() ? 0 : remembered_ - last_.size();
        for (std::size_t n = first; n < remembered_; ++n) text += text_of(' ', last_[n % last_.size()]);
        return text;
    }

    /// Waits until an event has come. Errors: the limit; what failed on the GPU before it.
    void wait_for(void* event, const char* what) const {
        refuse_in_graph(what);
        const double since = seconds_now();
        for (int tries = 0;; ++tries) {
            const int status = calls_->event_query(event);
            if (status == success) return;
            if (status != not_ready) refuse(status, what);
            if (tries < 1000) continue;  // numbers that are nearly there
            if (seconds_now() - since > limit_)
                fail(name_, ": ", what, " was not finished within ", limit_, " s", last_kernels());
            usleep(20);
        }
    }
    /// Whether it has come. Errors: what failed on the GPU before it.
    [[nodiscard]] bool has_come(void* event) const {
        const int status = calls_->event_query(event);
        if (status != not_ready) check(status, "cudaEventQuery");
        return status == success;
    }

    /// An event that nobody uses, and back. More are made if all are in use.
    [[nodiscard]] void* take_event() {
        if (unused_.empty()) return new_event();
        void* const event = unused_.back();
        unused_.pop_back();
        return event;
    }
    void give_back(void* event) { unused_.push_back(event); }

    /// Pinned memory for one readback. Errors: all are in use.
    [[nodiscard]] slot& take_slot() {
        refuse_in_graph("a readback");
        for (slot& one : slots_) {
            if (one.held) continue;
            one.held = true;
            return one;
        }
        fail(name_, ": found ", slots_count, " readbacks held at once, expected fewer");
    }

    /// The graph that is being captured, or null.
    [[nodiscard]] const char* capturing() const { return capturing_; }
    void set_capturing(const char* graph) { capturing_ = graph; }

  private:
    void choose(integer local_rank) {
        int count = 0;
        const int status = calls_->device_count(&count);
        if (status == insufficient_driver) refuse_driver();
        if (status != success && status != no_device) refuse(status, "cudaGetDeviceCount");
        const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
        const std::string left = visible != nullptr ? text_of(" (CUDA_VISIBLE_DEVICES is \"", visible, "\")") : "";
        if (status == no_device || count == 0) fail("CUDA: found no GPU", left, ", expected one");
        number_ = visible != nullptr && count == 1 ? 0 : local_rank;
        if (number_ < 0 || number_ >= count)
            fail("CUDA: found ", count, count == 1 ? " GPU" : " GPUs", left, ", expected one for the rank with number ",
                 local_rank, " on this machine");
    }
    void look_at(std::span<const int> built_for) {
        constexpr std::size_t more_than_any_release_writes = 8192;
        std::array<char, more_than_any_release_writes> properties{};  // begin with the name in all of them
        check(calls_->device_properties(properties.data(), static_cast<int>(number_)), "cudaGetDeviceProperties");
        name_ = text_of("GPU ", number_, " (", static_cast<const char*>(properties.data()), ")");
        constexpr int major_of_capability = 75, minor_of_capability = 76;
        int major = 0, minor = 0;
        check(calls_->device_attribute(&major, major_of_capability, static_cast<int>(number_)),
              "cudaDeviceGetAttribute");
        check(calls_->device_attribute(&minor, minor_of_capability, static_cast<int>(number_)),
              "cudaDeviceGetAttribute");
        capability_ = major * 100 + minor * 10;
        std::string list;
        for (const int built : built_for) {  // code runs on later GPUs of its generation
            if (built / 100 == major && built <= capability_) return;
            list += text_of(list.empty() ? "" : ", ", "sm_", built / 10);
        }
        if (!list.empty())
            fail(name_, ": found an sm_", capability_ / 10, ", but the kernels are built for ", list,
                 ": expected such a GPU, or kernels that are built for this one");
    }
    [[noreturn]] void refuse_driver() const {
        int driver = 0, version = 0;
        calls_->driver_version(&driver);
        calls_->runtime_version(&version);
        if (driver == 0) fail("CUDA: found no driver of NVIDIA on this machine, expected one, and a GPU");
        fail("CUDA: found a driver for CUDA ", driver / 1000, '.', driver % 1000 / 10,
             ", which is older than the runtime, ", version / 1000, '.', version % 1000 / 10,
             ": expected a newer driver, or the library libcudart.so of an older release");
    }
    [[noreturn]] void refuse(int status, const char* call) const {
        calls_->last_error();  // said once: the next kernel's launch is not to blame
        fail(name_, ": ", call, ": found ", calls_->error_name(status), " (", calls_->error_string(status), ')',
             status == no_kernel_image ? text_of(" on an sm_", capability_ / 10) : std::string{}, last_kernels(),
             "; expected no error");
    }
    void refuse_in_graph(const char* what) const {
        if (capturing_ != nullptr)
            fail("graph ", capturing_, ": found ", what, " within it, expected the graph to end before the host waits");
    }
    [[nodiscard]] void* new_event() {
        constexpr unsigned without_timing = 2;
        void* event = nullptr;
        check(calls_->event_create(&event, without_timing), "cudaEventCreateWithFlags");
        events_.push_back(event);
        unused_.reserve(events_.size());  // so that giving back never allocates
        return event;
    }

    const runtime* calls_;
    double limit_;
    integer number_ = 0;
    int capability_ = 0;
    std::string name_ = "CUDA";
    std::array<const char*, 8> last_{};
    std::size_t remembered_ = 0;
    std::vector<void*> events_, unused_;
    std::array<slot, slots_count> slots_{};
    const char* capturing_ = nullptr;
};

}  // namespace fathom::cuda
