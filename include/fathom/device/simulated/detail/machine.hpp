// The machine that runs a simulated kernel: threads of a block as fibers, meetings of threads, and a watch over memory.
#pragma once

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <fathom/core/bytes.hpp>
#include <fathom/core/error.hpp>
#include <fathom/device/simulated/detail/shadow.hpp>
#include <memory>
#include <utility>
#include <vector>

/// How the address sanitizer is told of fibers; not there without it.
extern "C" void __sanitizer_start_switch_fiber(void** kept, const void* bottom, std::size_t size) __attribute__((weak));
extern "C" void __sanitizer_finish_switch_fiber(void* kept, const void** bottom, std::size_t* size)
    __attribute__((weak));

namespace fathom::simulated::detail {

/// Where in a kernel's source something happens.
struct place {
    const char* file = "";
    int line = 0;
};

/// A piece of memory that a view stands for, in words for messages.
struct origin {
    bool shared = false;
    int number = 0;     // of the launch's argument, or of the block's shared array
    integer row = -1;   // of a matrix; -1 where there are no rows
    integer count = 0;  // numbers that may be touched
};

class machine {
  public:
    static constexpr int warp_size = 32, levels = 6;  // tiles of 2^0 .. 2^5 threads; level 6 is the block

    machine(const char* kernel, integer blocks, int threads, integer shared_bytes)
        : kernel_(kernel), blocks_(blocks), threads_(threads), shared_bytes_(shared_bytes) {
        if (threads < warp_size || threads > 1024 || threads % warp_size != 0)
            fail("kernel ", kernel, ": found blocks of ", threads, " threads, expected a multiple of 32 up to 1024");
        if (shared_bytes < 0 || shared_bytes > most_shared)
            fail("kernel ", kernel, ": found ", shared_bytes, " bytes of shared memory, expected at most ",
                 most_shared);
        if (blocks < 0 || blocks > 0x7fffffff)
            fail("kernel ", kernel, ": found ", blocks, " blocks, expected a number in [0, 2^31)");
        stacks_.resize(static_cast<std::size_t>(threads));
        for (auto& stack : stacks_) stack.reset(new std::byte[stack_bytes]);
        slots_.resize(static_cast<std::size_t>((levels + 1) * 2 * threads));
        shared_memory_.reset(new (std::align_val_t{128}) std::byte[static_cast<std::size_t>(shared_bytes + 1)]);
    }

    /// Runs `body(rank)` as every thread of every block. Throws the first fault.
    template <class Body> void run(Body&& body) {
        for (integer b = 0; b < blocks_; ++b) {
            block_ = static_cast<int>(b);
            start_block();
            for (int t = 0; t < threads_; ++t)
                all_[static_cast<std::size_t>(t)].self = boost::context::fiber{
                    std::allocator_arg, stack_of{stacks_[static_cast<std::size_t>(t)].get()},
                    [this, t, &body](boost::context::fiber&& back) { return live(t, std::move(back), body); }};
            schedule();
        }
    }

    [[nodiscard]] int rank() const { return current_; }
    [[nodiscard]] int threads() const { return threads_; }
    [[nodiscard]] int block() const { return block_; }
    [[nodiscard]] integer blocks() const { return blocks_; }
    [[nodiscard]] std::byte* shared_memory() const { return shared_memory_.get(); }
    [[nodiscard]] integer shared_bytes() const { return shared_bytes_; }

    /// Ends the launch with a message that names kernel, block and thread.
    template <class... Parts> [[noreturn]] void fault(const Parts&... parts) const {
        fail("kernel ", kernel_, ", block ", block_, ", thread ", current_, ": ", parts...);
    }

    /// Waits until all threads of this one's group have come here. `orders`: what was written before is seen after.
    void meet(int level, const char* what, place where, bool orders) {
        group& g = group_of(level, current_);
        fiber& me = all_[static_cast<std::size_t>(current_)];
        if (g.arrived > 0 && (g.what != what || g.where.line != where.line || std::strcmp(g.where.file, where.file)))
            fault(what, " at ", name(where.file), ":", where.line, ", but thread ", g.last, " waits in ", g.what,
                  " at ", name(g.where.file), ":", g.where.line, ", expected all threads of the group in one place");
        g.what = what, g.where = where, g.last = current_;
        if (++g.arrived == size_of(level)) {
            g.arrived = 0;
            ++g.generation;
            if (orders) g.synchronised = ++now_;
            return;
        }
        me.waits = &g;
        me.generation = g.generation;
        leave(me);
        me.scheduler = std::move(me.scheduler).resume();
        arrive(me);
        if (stopping_) throw stopped{};
        me.waits = nullptr;
    }

    /// Gives what thread `first of the tile + i` put, as slot(i), until the tile exchanges for the second time after.
    struct slot {
        alignas(16) std::byte bytes[64];
    };
    template <class Value> const slot* exchange(int level, const Value& value, const char* what, place where) {
        static_assert(sizeof(Value) <= sizeof(slot), "fathom: threads of a tile exchange at most 64 bytes each.");
        slot* all = slots_.data() + (level * 2 + static_cast<int>(group_of(level, current_).generation % 2)) * threads_;
        std::memcpy(all[current_].bytes, &value, sizeof(Value));
        meet(level, what, where, false);
        return all + (current_ & ~(size_of(level) - 1));
    }

    /// Notes a look at `bytes` bytes and faults when it clashes with an earlier one.
    enum class kind : unsigned char { read, write, atomic };
    void touch(kind how, const void* at, int bytes, const origin& from, integer index) {
        const auto address = reinterpret_cast<std::uintptr_t>(at);
        const auto first = from.shared ? address - reinterpret_cast<std::uintptr_t>(shared_memory_.get()) : address;
        for (int i = 0; i < bytes; ++i)
            note(how, from.shared ? shared_.at(first + i) : global_.at(first + i), from, index);
    }
    void check_bounds(const char* does, integer index, integer numbers, const origin& from) const {
        if (index < 0 || numbers > from.count || index > from.count - numbers)
            fault(does, " index ", index, numbers > 1 ? text_of(" to ", index + numbers - 1) : std::string{}, " of ",
                  words(from), ", which has ", from.count, from.count == 1 ? " number" : " numbers");
    }
    void check_aligned(const char* does, const void* at, integer bytes, const origin& from, integer index) const {
        if (reinterpret_cast<std::uintptr_t>(at) % static_cast<std::uintptr_t>(bytes) != 0)
            fault(does, " ", bytes, " bytes at index ", index, " of ", words(from), ", which is at address ",
                  reinterpret_cast<std::uintptr_t>(at), ", expected a multiple of ", bytes);
    }

    /// An asynchronous copy of `valid` bytes and zeros up to `bytes`: done when its thread has waited for it.
    void copy_async(void* to, const void* from, int bytes, int valid, const origin& target, const origin& source,
                    integer to_index, integer from_index) {
        touch(kind::read, from, valid, source, from_index);
        touch(kind::write, to, bytes, target, to_index);
        for (int i = 0; i < bytes; ++i) shared_cell(static_cast<std::byte*>(to) + i).pending = current_;
        fiber& me = all_[static_cast<std::size_t>(current_)];
        me.copies.push_back({static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes, valid, me.batch});
    }
    void commit_copies() { ++all_[static_cast<std::size_t>(current_)].batch; }
    /// Until at most `left` of this thread's committed batches are not done.
    void wait_copies(int left) {
        fiber& me = all_[static_cast<std::size_t>(current_)];
        std::size_t kept = 0;
        for (const copy& c : me.copies) {
            if (c.batch >= me.batch - left) {
                me.copies[kept++] = c;
                continue;
            }
            std::memcpy(c.to, c.from, static_cast<std::size_t>(c.valid));
            std::memset(c.to + c.valid, 0, static_cast<std::size_t>(c.bytes - c.valid));
            for (int i = 0; i < c.bytes; ++i) {
                cell& at = shared_cell(c.to + i);
                at.pending = access::nobody;
                at.writer = {block_, current_, 0, now_};
            }
        }
        me.copies.resize(kept);
    }

    static std::string words(const origin& from) {
        if (from.shared) return text_of("shared array ", from.number);
        return from.row < 0 ? text_of("argument ", from.number)
                            : text_of("row ", from.row, " of argument ", from.number);
    }

  private:
    static constexpr integer most_shared = 227 << 10;  // of one block on Hopper
    static constexpr std::size_t stack_bytes = 256 << 10;

    struct group {
        int arrived = 0;
        int last = 0;
        std::uint32_t generation = 0;
        std::uint32_t synchronised = 0;  // when the last barrier was complete
        const char* what = "";
        place where;
    };
    struct copy {
        std::byte* to;
        const std::byte* from;
        int bytes, valid, batch;
    };
    struct fiber {
        boost::context::fiber self, scheduler;
        const group* waits = nullptr;
        std::uint32_t generation = 0;
        int batch = 0;
        std::vector<copy> copies;
        bool ended = false;
        void* kept = nullptr;  // the address sanitizer's
    };
    /// Thrown in the fibers of a block that has failed, so that they end.
    struct stopped {};
    /// Boost's allocator of stacks, over memory that blocks use one after the other.
    struct stack_of {
        std::byte* memory;
        boost::context::stack_context allocate() const {
            boost::context::stack_context stack;
            stack.size = stack_bytes;
            stack.sp = memory + stack_bytes;
            return stack;
        }
        void deallocate(boost::context::stack_context&) const {}
    };
    struct aligned_delete {
        void operator()(std::byte* memory) const { operator delete[](memory, std::align_val_t{128}); }
    };

    static const char* name(const char* path) {
        const char* slash = std::strrchr(path, '/');
        return slash == nullptr ? path : slash + 1;
    }
    [[nodiscard]] int size_of(int level) const { return level == levels ? threads_ : 1 << level; }
    group& group_of(int level, int thread) {
        return level == levels ? whole_ : groups_[static_cast<std::size_t>(level * threads_ + (thread >> level))];
    }
    cell& shared_cell(const std::byte* at) {
        return shared_.at(static_cast<std::uintptr_t>(at - shared_memory_.get()));
    }

    void start_block() {
        all_.clear();
        all_.resize(static_cast<std::size_t>(threads_));
        groups_.assign(static_cast<std::size_t>(levels * threads_), group{});
        whole_ = {};
        now_ = 0;
        shared_.clear(static_cast<std::size_t>(shared_bytes_));
        std::memset(shared_memory_.get(), 0xff, static_cast<std::size_t>(shared_bytes_));  // NaN in every format
    }

    template <class Body> boost::context::fiber live(int thread, boost::context::fiber&& back, Body& body) {
        fiber& me = all_[static_cast<std::size_t>(thread)];
        me.scheduler = std::move(back);
        arrive(me);
        try {
            if (!stopping_) body(thread);
            if (!stopping_ && !me.copies.empty())
                fault("ends with ", me.copies.size(), " asynchronous copies that it did not wait for");
        } catch (const stopped&) {
        } catch (...) {
            failure_ = std::current_exception();
        }
        me.ended = true;
        if (__sanitizer_start_switch_fiber != nullptr)
            __sanitizer_start_switch_fiber(nullptr, scheduler_bottom_, scheduler_size_);
        return std::move(me.scheduler);
    }
    void leave(fiber& from) {
        if (__sanitizer_start_switch_fiber != nullptr)
            __sanitizer_start_switch_fiber(&from.kept, scheduler_bottom_, scheduler_size_);
    }
    void arrive(fiber& at) {
        if (__sanitizer_finish_switch_fiber != nullptr)
            __sanitizer_finish_switch_fiber(at.kept, &scheduler_bottom_, &scheduler_size_);
    }
    /// Runs a thread until it waits or ends.
    void resume(int thread) {
        current_ = thread;
        fiber& next = all_[static_cast<std::size_t>(thread)];
        void* kept = nullptr;
        if (__sanitizer_start_switch_fiber != nullptr)
            __sanitizer_start_switch_fiber(&kept, stacks_[static_cast<std::size_t>(thread)].get(), stack_bytes);
        next.self = std::move(next.self).resume();
        if (__sanitizer_finish_switch_fiber != nullptr) __sanitizer_finish_switch_fiber(kept, nullptr, nullptr);
    }
    void stop_all() {
        stopping_ = true;
        for (int t = 0; t < threads_; ++t)
            if (!all_[static_cast<std::size_t>(t)].ended) resume(t);
    }

    void schedule() {
        for (int left = threads_; left > 0;) {
            bool moved = false;
            for (int t = 0; t < threads_; ++t) {
                fiber& next = all_[static_cast<std::size_t>(t)];
                if (next.ended || (next.waits != nullptr && next.waits->generation == next.generation)) continue;
                moved = true;
                resume(t);
                left -= next.ended;
                if (failure_) {
                    stop_all();
                    std::rethrow_exception(std::exchange(failure_, nullptr));
                }
            }
            if (!moved) report_stuck();
        }
    }

    /// All threads that have not ended wait, and none will come: names one that waits and one that is missing.
    [[noreturn]] void report_stuck() {
        int waiting = 0;
        for (int t = threads_ - 1; t >= 0; --t)  // the smallest group says most
            if (!all_[static_cast<std::size_t>(t)].ended &&
                (all_[static_cast<std::size_t>(waiting)].ended || group_size(t) <= group_size(waiting)))
                waiting = t;
        const group& g = *all_[static_cast<std::size_t>(waiting)].waits;
        int missing = 0;
        while (missing < threads_ && !belongs(missing, g)) ++missing;
        while (all_[static_cast<std::size_t>(missing)].waits == &g) ++missing;
        const fiber& other = all_[static_cast<std::size_t>(missing)];
        std::string text = text_of("waits in ", g.what, " at ", name(g.where.file), ":", g.where.line, ", but thread ",
                                   missing, other.ended ? " has ended" : "");
        if (!other.ended)
            text += text_of(" waits in ", other.waits->what, " at ", name(other.waits->where.file), ":",
                            other.waits->where.line);
        stop_all();
        current_ = waiting;
        fault(text, ", expected all threads of the group in one place");
    }
    int group_size(int thread) {
        const group* g = all_[static_cast<std::size_t>(thread)].waits;
        if (g == nullptr || g == &whole_) return threads_;
        return 1 << ((g - groups_.data()) / threads_);
    }
    bool belongs(int thread, const group& g) {
        for (int level = 0; level <= levels; ++level)
            if (&group_of(level, thread) == &g) return true;
        return false;
    }

    /// Whether a barrier lies between an earlier look and what the running thread does now.
    [[nodiscard]] bool ordered(const access& before) {
        if (before.thread == access::nobody) return true;
        if (before.block != block_) return false;
        if ((before.thread == current_ && before.spread == 0) || whole_.synchronised > before.time) return true;
        for (int level = std::max(before.spread, 1); level < levels; ++level)
            if (before.thread >> level == current_ >> level && group_of(level, current_).synchronised > before.time)
                return true;
        return false;
    }

    void note(kind how, cell& at, const origin& from, integer index) {
        if (at.pending != access::nobody)
            fault(how == kind::read ? "reads" : "writes", " index ", index, " of ", words(from), " while thread ",
                  at.pending, " has not waited for its asynchronous copy there");
        if (how == kind::read && from.shared && at.writer.thread == access::nobody)
            fault("reads index ", index, " of ", words(from), ", which nobody has written");
        const bool both_atomic = how == kind::atomic && at.atomic;
        if (!both_atomic && !ordered(at.writer)) clash(how, "written", at.writer, from, index);
        if (how != kind::read) {
            for (const access& reader : at.readers)
                if (!ordered(reader)) clash(how, "read", reader, from, index);
            const access before = at.writer;
            at.writer = {block_, current_, 0, now_};
            if (both_atomic && !ordered(before)) {
                if (before.block != block_) at.writer.block = access::several;
                at.writer.spread = before.spread;
                while (before.thread >> at.writer.spread != current_ >> at.writer.spread) ++at.writer.spread;
            }
            at.atomic = how == kind::atomic;
            at.readers[0] = at.readers[1] = {};
            return;
        }
        for (access& reader : at.readers)
            if (reader.block == block_ && reader.thread == current_) {
                reader.time = now_;
                return;
            }
        for (access& reader : at.readers)
            if (ordered(reader)) {
                reader = {block_, current_, 0, now_};
                return;
            }
        // Both readers clash with whoever writes next, as blocks run one after the other: no third is needed.
    }
    [[noreturn]] void clash(kind how, const char* what, const access& before, const origin& from, integer index) const {
        constexpr const char* words_of[] = {"reads", "writes", "changes atomically"};
        const bool many = before.spread > 0 || before.block == access::several;
        std::string who = many ? "several threads" : text_of("thread ", before.thread);
        if (before.block == access::several)
            who += " of several blocks";
        else if (before.block != block_)
            who += text_of(" of block ", before.block);
        fault(words_of[static_cast<int>(how)], " index ", index, " of ", words(from), ", which ", who,
              many ? " have " : " has ", what,
              before.block == block_ ? " with no barrier between" : "; blocks have no order");
    }

    const char* kernel_;
    integer blocks_;
    int threads_;
    integer shared_bytes_;
    std::vector<std::unique_ptr<std::byte[]>> stacks_;
    std::vector<slot> slots_;
    std::unique_ptr<std::byte, aligned_delete> shared_memory_;
    shared_shadow shared_;
    global_shadow global_;
    std::vector<group> groups_;
    group whole_;
    std::exception_ptr failure_;
    bool stopping_ = false;
    const void* scheduler_bottom_ = nullptr;
    std::size_t scheduler_size_ = 0;
    std::vector<fiber> all_;
    int block_ = 0, current_ = 0;
    std::uint32_t now_ = 0;
};

}  // namespace fathom::simulated::detail
