// How a rank moves its operations on while it waits: every buffer is read where it lies, by the rank that needs it.
#pragma once

#include <cstring>
#include <fathom/comm/detail/ordered_reduction.hpp>
#include <fathom/comm/detail/thread_job.hpp>
#include <fathom/core/seconds_now.hpp>

namespace fathom::comm::detail {

/// The operations of one rank of a job; its thread's alone.
class thread_progress {
  public:
    thread_progress(thread_job& job, integer number) : job_(&job), me_(&job.rank(number)), number_(number) {}

    /// Issues an operation and moves on what can be moved.
    thread_operation& start(thread_seat& seat, const request& what) {
        job_->thaw(number_);
        job_->check();
        check_request(what, seat.meeting->size(), seat.meeting->name.c_str());
        if (me_->unused.empty()) me_->unused.push_back(&me_->storage.emplace_back());
        thread_operation& op = *me_->unused.back();
        op.seat = &seat;
        op.what = what;
        op.announced = op.worked = op.done = false;
        op.sequence = what.kind == operation::exchange ? seat.exchanges++ : seat.collectives++;
        op.ticket = seat.recorder.begin(what, op.sequence, seat.meeting->size());
        op.parts.clear();
        for (const message& m : what.messages)
            op.parts.push_back(
                {(m.sends ? seat.sends : seat.receives)[static_cast<std::size_t>(m.peer)]++, false, false});
        me_->pending.push_back(&op);
        me_->unused.pop_back();
        me_->stands_in(op);
        try {
            advance_all();
        } catch (...) {
            release(op);
            throw;
        }
        return op;
    }

    bool done(const thread_operation& op) {
        if (!op.done) advance_all();
        if (!op.done) job_->check();  // what all ranks did stays done, whoever died afterwards
        return op.done;
    }

    void wait(const thread_operation& op) {
        me_->stands_in(op);
        me_->doing.store(rank_standing::state::waits, std::memory_order_relaxed);
        struct leaves {
            thread_rank* rank;
            ~leaves() { rank->doing.store(rank_standing::state::computes, std::memory_order_relaxed); }
        } const afterwards{me_};
        // Another rank on its own core answers within spins; one that shares this core, or lost its own to another
        // program, needs this one to step aside.
        for (int spin = job_->crowded() ? 0 : 300; spin > 0; --spin, pause())
            if (done(op)) return;
        for (int turn = 0; turn < 16; ++turn, std::this_thread::yield())
            if (done(op)) return;
        const auto began = seconds_now();
        while (!done(op)) {
            const auto waited = seconds_now() - began;
            if (waited >= job_->limit().limit)
                job_->fail(watchdog::report(job_->limit().overdue(described(op)), absent_from(op), job_->standings()));
            if (const std::vector<integer> gone = gone_from(op); !gone.empty())
                job_->fail(watchdog::report(described(op) + " cannot be finished", gone, job_->standings()));
            const std::uint32_t ticket = me_->sleep.ticket();
            if (!done_before_sleep(op)) me_->sleep.sleep(ticket, job_->limit().limit - waited);
            me_->sleep.awake();
        }
    }

    /// The handle is gone. If the operation is not done, its buffers may go too: the job cannot go on.
    void release(thread_operation& op) {
        if (!op.done) job_->freeze(number_, text_of("rank ", number_, " left ", described(op), " unfinished"));
        std::erase(me_->pending, &op);  // done ones stay there when an error cut `advance_all` short
        me_->unused.push_back(&op);
    }

    /// So that a handle holds it as it holds a pointer.
    [[nodiscard]] thread_progress* operator->() { return this; }

  private:
    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    static std::string described(const thread_operation& op) {
        return detail::described(op.what.kind, op.sequence, op.seat->meeting->name.c_str(), op.what.label);
    }
    bool done_before_sleep(const thread_operation& op) {
        try {
            return done(op) || job_->has_ended();
        } catch (...) {
            me_->sleep.awake();
            throw;
        }
    }
    void ring(thread_meeting& meeting) {
        for (const integer rank : meeting.ranks)
            if (rank != number_) job_->rank(rank).sleep.ring();
    }
    void advance_all() {
        for (thread_operation* op : me_->pending) {
            if (op->what.kind == operation::exchange)
                advance_exchange(*op);
            else
                advance_collective(*op);
            if (op->done) op->seat->recorder.set(op->ticket, record_state::done);
        }
        std::erase_if(me_->pending, [](const thread_operation* op) { return op->done; });
    }

    void advance_collective(thread_operation& op) {
        thread_meeting& meeting = *op.seat->meeting;
        thread_meeting::member& mine = meeting.of(op.seat->rank);
        const auto all = [&](auto&& holds) {
            for (thread_meeting::member& each : meeting.members)
                if (!holds(each)) return false;
            return true;
        };
        const std::uint64_t number = op.sequence;
        if (!op.announced) {
            // The place in the ring is free when nobody looks at what it held before.
            if (mine.arrived.load() != number ||
                !all([&](const auto& each) { return each.worked.load() + meeting.depth > number; }))
                return;
            mine.requests[number % meeting.depth] = op.what;
            mine.arrived.store(number + 1);
            op.announced = true;
            ring(meeting);
            compare(op);
        }
        if (!op.worked) {
            if (mine.worked.load() != number || !all([&](const auto& each) { return each.arrived.load() > number; }))
                return;
            op.seat->recorder.set(op.ticket, record_state::running);
            if (!compare(op) || !job_->enter(number_)) return;
            work(op);
            job_->leave(number_);
            mine.worked.store(number + 1);
            op.worked = true;
            ring(meeting);
        }
        const bool nobody_reads_mine = op.what.kind == operation::barrier ||
                                       (op.what.kind == operation::broadcast && op.what.root != op.seat->rank);
        op.done = nobody_reads_mine || all([&](const auto& each) { return each.worked.load() > number; });
    }

    /// Ends the job if a rank that came disagrees; false if the job does not run.
    bool compare(thread_operation& op) {
        thread_meeting& meeting = *op.seat->meeting;
        if (!job_->enter(number_)) return false;  // counts lie in the other's memory
        disagreement found;
        integer with = 0;
        for (; with < meeting.size() && !found; ++with)
            if (with != op.seat->rank && meeting.of(with).arrived.load() > op.sequence)
                found = disagreement_of(terms_of(op.what, with), terms_of(request_of(op, with), op.seat->rank));
        std::string other;
        if (found) {
            const request& theirs = request_of(op, --with);
            other = detail::described(theirs.kind, op.sequence, meeting.name.c_str(), theirs.label);
        }
        job_->leave(number_);
        if (found) job_->fail(disagreement_text(found, number_, described(op), meeting.job_rank(with), other));
        return true;
    }
    static const request& request_of(const thread_operation& op, integer rank) {
        return op.seat->meeting->of(rank).requests[op.sequence % thread_meeting::depth];
    }

    static void copy(void* to, const void* from, integer bytes) {
        if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
    }
    static char* at(void* start, integer bytes) { return static_cast<char*>(start) + bytes; }
    static const char* at(const void* start, integer bytes) { return static_cast<const char*>(start) + bytes; }

    /// This rank's share, when all have come.
    void work(const thread_operation& op) {
        const request& what = op.what;
        const integer ranks = op.seat->meeting->size(), rank = op.seat->rank, size = bytes_of(what.format);
        const auto input = [&](integer of) { return request_of(op, of).input; };
        switch (what.kind) {
            case operation::all_reduce: {
                if (ranks == 1) break;
                // Each rank reduces a fixed piece of whole cache lines and puts it where every rank wants it.
                const integer piece = round_up(pieces(what.count, ranks), 64);
                const integer begin = std::min(rank * piece, what.count), end = std::min(begin + piece, what.count);
                ordered_reduction(what.format, ranks, begin, end, what.how, input,
                                  [&](const void* result, integer from, integer count) {
                                      for (integer to = 0; to < ranks; ++to)
                                          copy(at(request_of(op, to).output, from * size), result, count * size);
                                  });
                break;
            }
            case operation::reduce_scatter:
                ordered_reduction(
                    what.format, ranks, 0, what.count, what.how,
                    [&](integer of) { return at(input(of), rank * what.count * size); },
                    [&](const void* result, integer from, integer count) {
                        copy(at(what.output, from * size), result, count * size);
                    });
                break;
            case operation::all_gather:
                for (integer n = 0, from = rank; n < ranks; ++n, from = (from + 1) % ranks)
                    copy(at(what.output, from * what.count * size), input(from), what.count * size);
                break;
            case operation::all_to_all:
                for (integer n = 0, from = rank; n < ranks; ++n, from = (from + 1) % ranks) {
                    const auto entry = static_cast<std::size_t>(from), mine = static_cast<std::size_t>(rank);
                    const request& theirs = request_of(op, from);
                    const bool even = what.receive_counts.empty();
                    const integer count = even ? what.count : what.receive_counts[entry];
                    const integer to = even ? from * count : what.receive_offsets[entry];
                    const integer their = theirs.send_counts.empty() ? rank * count : theirs.send_offsets[mine];
                    copy(at(what.output, to * size), at(theirs.input, their * size), count * size);
                }
                break;
            case operation::broadcast:
                copy(what.output, input(what.root), what.count * size);
                break;
            case operation::exchange:
            case operation::barrier:
                break;
        }
    }

    void advance_exchange(thread_operation& op) {
        thread_meeting& meeting = *op.seat->meeting;
        const integer rank = op.seat->rank;
        bool all = true;
        for (std::size_t n = 0; n < op.parts.size(); ++n) {
            const message& m = op.what.messages[n];
            thread_operation::part& part = op.parts[n];
            if (part.done) continue;
            thread_meeting::lane& lane = m.sends ? meeting.between(rank, m.peer) : meeting.between(m.peer, rank);
            thread_meeting::posted& slot = lane.ring[part.number % meeting.lane_depth];
            const bool was_posted = part.posted;
            if (!m.sends) {
                if (lane.taken.load() == part.number && lane.sent.load() > part.number && take(op, m, slot)) {
                    lane.taken.store(part.number + 1);
                    part.done = true;
                }
            } else if (part.posted) {
                part.done = lane.taken.load() > part.number;
            } else if (lane.sent.load() == part.number && lane.taken.load() + meeting.lane_depth > part.number) {
                slot = {m, op.sequence, op.what.label};
                lane.sent.store(part.number + 1);
                part.posted = true;
            }
            if (m.sends ? part.posted != was_posted : part.done) job_->rank(meeting.job_rank(m.peer)).sleep.ring();
            all = all && part.done;
        }
        op.announced = true;
        op.done = all;
    }

    bool take(thread_operation& op, const message& wanted, const thread_meeting::posted& found) {
        if (found.sent.count != wanted.count || found.sent.format != wanted.format)
            job_->fail(text_of(
                "ranks disagree: rank ", op.seat->meeting->job_rank(wanted.peer), " sends ", found.sent.bytes(),
                " bytes (", name_of(found.sent.format), ") in ",
                detail::described(operation::exchange, found.sequence, op.seat->meeting->name.c_str(), found.label),
                ", rank ", number_, " expects ", wanted.bytes(), " (", name_of(wanted.format), ") in ", described(op)));
        if (!job_->enter(number_)) return false;
        op.seat->recorder.set(op.ticket, record_state::running);
        copy(wanted.data, found.sent.data, wanted.bytes());
        job_->leave(number_);
        return true;
    }

    /// The job's numbers of the ranks that this rank waits for and that have not come.
    static std::vector<integer> absent_from(const thread_operation& op) {
        thread_meeting& meeting = *op.seat->meeting;
        std::vector<integer> absent;
        if (op.what.kind != operation::exchange) {
            for (integer rank = 0; rank < meeting.size(); ++rank)
                if (meeting.of(rank).arrived.load() <= op.sequence) absent.push_back(meeting.job_rank(rank));
        } else {
            for (std::size_t n = 0; n < op.parts.size(); ++n) {
                const integer peer = meeting.job_rank(op.what.messages[n].peer);
                if (!op.parts[n].done && std::find(absent.begin(), absent.end(), peer) == absent.end())
                    absent.push_back(peer);
            }
        }
        return absent;
    }
    /// Those of them whose work is over. An end is seen before what the rank did is looked at again.
    std::vector<integer> gone_from(const thread_operation& op) {
        if (!job_->somebody_left()) return {};
        std::vector<integer> gone = absent_from(op);
        std::erase_if(gone, [&](integer rank) { return job_->rank(rank).doing.load() != rank_standing::state::ended; });
        if (gone.empty() || done(op)) return {};
        const std::vector<integer> still = absent_from(op);
        std::erase_if(gone, [&](integer rank) { return std::find(still.begin(), still.end(), rank) == still.end(); });
        return gone;
    }

    thread_job* job_;
    thread_rank* me_;
    integer number_;
};

}  // namespace fathom::comm::detail
