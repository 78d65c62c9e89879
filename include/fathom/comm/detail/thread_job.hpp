// What the ranks of one process share: who came to which operation, who sleeps, and whether the job still runs.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <fathom/comm/detail/bell.hpp>
#include <fathom/comm/detail/check_request.hpp>
#include <fathom/comm/flight_recorder.hpp>
#include <fathom/comm/watchdog.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fathom::comm::detail {

/// The meeting place of one communicator. Collectives are numbered; a rank says how many it came to (`arrived`) and for
/// how many it has moved its share of data (`worked`), and reads the others' requests and buffers in between.
struct thread_meeting {
    /// How many operations may be under way before a rank must wait for others to announce one more.
    static constexpr std::uint64_t depth = 32, lane_depth = 16;
    struct member {
        alignas(64) std::atomic<std::uint64_t> arrived{0};
        alignas(64) std::atomic<std::uint64_t> worked{0};
        std::array<request, depth> requests{};
    };
    struct posted {
        message sent;
        std::uint64_t sequence;
        const char* label;
    };
    /// From one rank to one rank: sends that were posted and that were taken.
    struct lane {
        alignas(64) std::atomic<std::uint64_t> sent{0};
        alignas(64) std::atomic<std::uint64_t> taken{0};
        std::array<posted, lane_depth> ring{};
    };

    thread_meeting(std::string called, std::vector<integer> of)
        : name(std::move(called)), ranks(std::move(of)), members(ranks.size()), lanes(ranks.size() * ranks.size()) {}

    [[nodiscard]] integer size() const { return static_cast<integer>(ranks.size()); }
    [[nodiscard]] member& of(integer rank) { return members[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] lane& between(integer from, integer to) {
        return lanes[static_cast<std::size_t>(from * size() + to)];
    }
    /// The job's number of a rank of this communicator.
    [[nodiscard]] integer job_rank(integer rank) const { return ranks[static_cast<std::size_t>(rank)]; }

    std::string name;
    std::vector<integer> ranks;
    std::vector<member> members;
    std::vector<lane> lanes;
};

/// A rank's place in a communicator; its thread's alone.
struct thread_seat {
    thread_seat(thread_meeting& in, integer as)
        : meeting(&in), rank(as), sends(in.ranks.size()), receives(in.ranks.size()) {}
    thread_meeting* meeting;
    integer rank;
    std::uint64_t collectives = 0, exchanges = 0;
    std::vector<std::uint64_t> sends, receives;  // [peer], issued so far
    flight_recorder recorder;
};

/// An operation under way, on the side of one rank.
struct thread_operation {
    struct part {
        std::uint64_t number;  // of its lane
        bool posted, done;
    };
    thread_seat* seat = nullptr;
    request what;
    std::uint64_t sequence = 0, ticket = 0;
    bool announced = false, worked = false, done = false;
    std::vector<part> parts;  // of an exchange; keeps its memory for the next operation
};

/// A rank as the job sees it.
struct thread_rank {
    alignas(64) bell sleep;
    /// Whether it reads or writes memory of other ranks.
    alignas(64) std::atomic<bool> busy{false};
    // What it stands in, for reports of others.
    std::atomic<rank_standing::state> doing{rank_standing::state::computes};
    std::atomic<const char*> communicator{nullptr}, label{""};
    std::atomic<std::uint64_t> sequence{0};
    std::atomic<operation> kind{operation::barrier};
    // Its thread's alone.
    std::deque<thread_operation> storage;
    std::vector<thread_operation*> unused, pending;

    void stands_in(const thread_operation& op) {
        communicator.store(op.seat->meeting->name.c_str(), std::memory_order_relaxed);
        label.store(op.what.label, std::memory_order_relaxed);
        sequence.store(op.sequence, std::memory_order_relaxed);
        kind.store(op.what.kind, std::memory_order_relaxed);
    }
    [[nodiscard]] rank_standing standing(integer number) const {
        const char* where = communicator.load(std::memory_order_relaxed);
        return {number, doing.load(std::memory_order_relaxed),
                where == nullptr
                    ? std::string{}
                    : described(kind.load(std::memory_order_relaxed), sequence.load(std::memory_order_relaxed), where,
                                label.load(std::memory_order_relaxed))};
    }
};

/// All ranks of a process and their end. A rank touches memory of others only between `enter` and `leave`. Once the job
/// is frozen or ended nobody enters, and who is about to give up its buffers first waits until all have left.
class thread_job {
  public:
    thread_job(integer ranks, watchdog limit) : limit_(limit), ranks_(static_cast<std::size_t>(ranks)) {}

    [[nodiscard]] integer size() const { return static_cast<integer>(ranks_.size()); }
    [[nodiscard]] thread_rank& rank(integer number) { return ranks_[static_cast<std::size_t>(number)]; }
    [[nodiscard]] const watchdog& limit() const { return limit_; }
    /// Whether ranks share cores, so that who spins keeps another from its work.
    [[nodiscard]] bool crowded() const { return crowded_; }

    [[nodiscard]] bool enter(integer number) {
        rank(number).busy.store(true);
        if (state_.load() == state::runs) return true;
        rank(number).busy.store(false);
        return false;
    }
    void leave(integer number) { rank(number).busy.store(false); }

    /// The first reason stays. Every rank throws it from its next operation, or from the one that it is in.
    void end(const std::string& reason) {
        const std::lock_guard lock{mutex_};
        if (state_.load() == state::ended) return;
        reason_ = reason;
        state_.store(state::ended);
        for (thread_rank& each : ranks_) each.sleep.ring();
    }
    /// A rank gives up buffers that others may be using; why, `end` will say, or that rank's next operation.
    void freeze(integer number, const std::string& reason) {
        {
            const std::lock_guard lock{mutex_};
            if (state_.load() == state::runs) {
                reason_ = reason;
                frozen_by_ = number;
                state_.store(state::frozen);
            }
        }
        wait_until_all_left();
    }
    /// A rank's work is over: those that wait for it look whether it came.
    void leave_for_good(integer number) {
        thaw(number);
        rank(number).doing.store(rank_standing::state::ended);
        left_.store(true);
        for (thread_rank& each : ranks_) each.sleep.ring();
    }
    [[nodiscard]] bool somebody_left() const { return left_.load(); }
    [[nodiscard]] bool has_ended() const { return state_.load() == state::ended; }
    [[nodiscard]] std::string reason() {
        const std::lock_guard lock{mutex_};
        return reason_;
    }
    /// Ends the job that this rank froze, if it did.
    void thaw(integer number) {
        if (state_.load() == state::runs) return;
        std::string reason;
        {
            const std::lock_guard lock{mutex_};
            if (state_.load() != state::frozen || frozen_by_ != number) return;
            reason = reason_;
        }
        end(reason);
    }
    void check() {
        if (!has_ended()) return;
        wait_until_all_left();
        throw error{reason()};
    }
    [[noreturn]] void fail(const std::string& reason) {
        end(reason);
        wait_until_all_left();
        throw error{this->reason()};
    }

    /// The meeting place of a communicator that was split off: made by the first of its ranks that asks.
    thread_meeting& meeting(const thread_meeting* parent, std::uint64_t split, integer colour, const std::string& name,
                            const std::vector<integer>& ranks) {
        const std::lock_guard lock{mutex_};
        for (made& each : meetings_)
            if (each.parent == parent && each.split == split && each.colour == colour) return each.place;
        return meetings_.emplace_back(parent, split, colour, name, ranks).place;
    }
    [[nodiscard]] std::vector<rank_standing> standings() const {
        std::vector<rank_standing> all;
        for (std::size_t number = 0; number < ranks_.size(); ++number)
            all.push_back(ranks_[number].standing(static_cast<integer>(number)));
        return all;
    }

  private:
    enum class state { runs, frozen, ended };
    struct made {
        made(const thread_meeting* of, std::uint64_t at, integer with, const std::string& name,
             const std::vector<integer>& ranks)
            : parent(of), split(at), colour(with), place(name, ranks) {}
        const thread_meeting* parent;
        std::uint64_t split;
        integer colour;
        thread_meeting place;
    };
    void wait_until_all_left() const {
        for (const thread_rank& each : ranks_)
            while (each.busy.load()) std::this_thread::yield();
    }

    watchdog limit_;
    std::vector<thread_rank> ranks_;
    bool crowded_ = size() > static_cast<integer>(std::thread::hardware_concurrency());
    std::deque<made> meetings_;
    std::mutex mutex_;
    std::atomic<state> state_{state::runs};
    std::atomic<bool> left_{false};
    integer frozen_by_ = -1;
    std::string reason_;
};

}  // namespace fathom::comm::detail
