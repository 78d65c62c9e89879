// One rank's place in one NCCL communicator: its streams, what is under way on them, and how it ends when that fails.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <fathom/comm/detail/check_request.hpp>
#include <fathom/comm/flight_recorder.hpp>
#include <fathom/comm/nccl/library.hpp>
#include <fathom/comm/nccl/settings.hpp>
#include <fathom/comm/watchdog.hpp>
#include <fathom/core/seconds_now.hpp>
#include <memory>
#include <string>
#include <vector>

namespace fathom::comm::nccl::detail {

/// ncclDataType_t.
[[nodiscard]] constexpr int format_of(element format) {
    constexpr int formats[] = {8, 7, 9, 4, 2, 1};
    return formats[static_cast<int>(format)];
}
/// ncclRedOp_t.
[[nodiscard]] constexpr int operation_of(reduction how) { return how == reduction::sum ? 0 : 2; }

struct operation_under_way {
    void *ready = nullptr, *finished = nullptr;  // events: buffers are there; the operation is over
    operation kind = operation::barrier;
    std::uint64_t sequence = 0, ticket = 0;
    const char* label = "";
    double since = 0;
    bool waited = false, done = false, held = false;
};

class seat {
  public:
    /// The communicator of messages up to a size.
    struct lane {
        integer up_to;
        void* comm;
    };

    seat(const functions& calls, void* queue, const settings& tuned, watchdog limit, const char* name)
        : calls_(&calls), queue_(queue), tuned_(tuned), limit_(limit), name_(name) {}
    seat(const seat&) = delete;
    seat& operator=(const seat&) = delete;
    ~seat() {
        const bool in_order = failure_.empty() && std::uncaught_exceptions() == 0;
        for (std::size_t n = owned_.size(); n-- > 0;) leave(owned_[n], in_order);
        for (const auto& op : operations_) {
            calls_->cuda.event_destroy(op->ready);
            calls_->cuda.event_destroy(op->finished);
        }
        for (void* const stream : streams_)
            if (stream != nullptr) calls_->cuda.stream_destroy(stream);
        if (scratch_ != nullptr) calls_->cuda.free(scratch_);
    }

    void take_place(integer rank, integer size) {
        rank_ = rank;
        size_ = size;
        who_ = text_of("rank ", rank, " of ", name_);
    }
    /// The first communicator of all: made by `make(comm, configuration)`, which gives NCCL's result.
    template <class Make> void begin(Make&& make, void* parent = nullptr) {
        const std::vector<choice> choices = choices_of(tuned_, name_);
        void* first = nullptr;
        {
            const with_choice now{choices.front()};
            first = made(parent, [&](void** comm, configuration* how) { return make(comm, how); });
        }
        take(first, choices);
    }
    /// Another's communicator: all sizes go over it, and it stays the other's.
    void adopt(void* comm) {
        lanes_ = {{choice{}.up_to, comm}};
        take_rest();
    }
    /// A part of another seat's ranks.
    void begin_part(seat& whole, int colour, int key) {
        whole.check();
        who_ = text_of(whole.who_, ", in the split to ", name_);
        void* const parent = whole.lanes_.back().comm;
        begin([&](void** comm, configuration* how) { return calls_->nccl.split(parent, colour, key, comm, how); },
              parent);
    }

    [[nodiscard]] operation_under_way& start(const request& what) {
        comm::detail::check_request(what, size_, name_.c_str());
        look();
        const bool apart = what.kind == operation::exchange;
        void* const stream = streams_[apart];
        operation_under_way& op = unused();
        op.kind = what.kind;
        op.label = what.label;
        op.sequence = apart ? exchanges_++ : collectives_++;
        op.ticket = recorder_.begin(what, op.sequence, size_);
        op.since = seconds_now();
        op.waited = op.done = false;
        op.held = true;
        try {
            cuda(calls_->cuda.event_record(op.ready, queue_), "cudaEventRecord");
            cuda(calls_->cuda.stream_wait(stream, op.ready, 0), "cudaStreamWaitEvent");
            issue(what, stream);
            cuda(calls_->cuda.event_record(op.finished, stream), "cudaEventRecord");
        } catch (...) {
            op.held = false;
            op.done = true;
            throw;
        }
        recorder_.set(op.ticket, record_state::running);
        return op;
    }
    void wait(operation_under_way& op) {
        look();
        cuda(calls_->cuda.stream_wait(queue_, op.finished, 0), "cudaStreamWaitEvent");
        op.waited = true;
    }
    bool done(operation_under_way& op) {
        if (!op.done) look();
        return op.done;
    }
    void release(operation_under_way& op) {
        op.held = false;
        if (op.waited || op.done || !failure_.empty()) return;
        if (calls_->cuda.event_query(op.finished) == fathom::cuda::not_ready)
            give_up(described(op) + " was left unfinished");
    }
    /// Waits until nothing is under way.
    void settle() {
        for (look(); std::any_of(operations_.begin(), operations_.end(), [](const auto& op) { return !op->done; });
             look())
            usleep(20);
    }

    integer rank_ = 0, size_ = 1;
    flight_recorder recorder_;
    const functions* calls_;
    void* queue_;
    settings tuned_;
    watchdog limit_;
    std::string name_;

  private:
    [[nodiscard]] std::string described(const operation_under_way& op) const {
        return comm::detail::described(op.kind, op.sequence, name_.c_str(), op.label);
    }

    /// Throws what has ended this communicator.
    void check() const {
        if (!failure_.empty()) fail(failure_);
    }
    /// Frees the GPU of what hangs on it; from here on every call throws the text.
    void give_up(const std::string& why) {
        failure_ = text_of(who_, ": ", why);
        for (void* const comm : owned_) calls_->nccl.abort(comm);
        if (!lanes_.empty() && (owned_.empty() || owned_.front() != lanes_.front().comm))
            calls_->nccl.abort(lanes_.front().comm);
        owned_.clear();
        lanes_.clear();
    }
    [[noreturn]] void end(const std::string& why) {
        give_up(why);
        fail(failure_);
    }
    void cuda(int status, const char* call) {
        if (status != success)
            end(text_of(call, ": found ", calls_->cuda.error_string(status), ", expected no error of CUDA"));
    }
    /// A call of NCCL that may go on in the background.
    void nccl(int result, void* comm, const char* call) {
        const double since = seconds_now();
        while (result == in_progress) {
            if (seconds_now() - since > limit_.limit) end(limit_.overdue(call));
            usleep(20);
            if (const int asked = calls_->nccl.async_error(comm, &result); asked != success) result = asked;
        }
        if (result == success) return;
        const char* const more = calls_->nccl.last_error(comm);
        end(text_of(call, ": found ", calls_->nccl.error_string(result), more != nullptr && *more != '\0' ? ": " : "",
                    more != nullptr ? more : "", ", expected no error of NCCL"));
    }

    /// A communicator as `make` begins it, when all ranks have come. Until it is there, a parent tells of its state.
    template <class Make> void* made(void* parent, Make&& make) {
        configuration how;
        how.blocking = 0;
        void* comm = nullptr;
        const double since = seconds_now();
        int result = make(&comm, &how);
        while (result == success || result == in_progress) {
            if (void* const asked = comm != nullptr ? comm : parent; asked != nullptr)
                if (const int status = calls_->nccl.async_error(asked, &result); status != success) result = status;
            if (result == success && comm != nullptr) return comm;
            if (seconds_now() - since > limit_.start) {
                if (comm != nullptr) calls_->nccl.abort(comm);
                end(text_of("start-up was not finished within ", limit_.start, " s: not all ranks came"));
            }
            usleep(20);
        }
        if (comm != nullptr) calls_->nccl.abort(comm);
        end(text_of("start-up: found ", calls_->nccl.error_string(result),
                    ", expected all ranks to meet (NCCL_DEBUG=INFO tells more)"));
    }
    void* twin(void* of) {
        void* const comm = made(of, [&](void** to, configuration* how) {
            return calls_->nccl.split(of, 0, static_cast<int>(rank_), to, how);
        });
        owned_.push_back(comm);
        return comm;
    }
    void take(void* first, const std::vector<choice>& choices) {
        owned_.push_back(first);
        lanes_ = {{choices.front().up_to, first}};
        number(first);
        for (std::size_t n = 1; n < choices.size(); ++n) {
            const with_choice now{choices[n]};
            lanes_.push_back({choices[n].up_to, twin(first)});
        }
        take_rest();
    }
    void number(void* comm) {
        int rank = 0, size = 0;
        nccl(calls_->nccl.user_rank(comm, &rank), comm, "ncclCommUserRank");
        nccl(calls_->nccl.count(comm, &size), comm, "ncclCommCount");
        take_place(rank, size);
    }
    void take_rest() {
        constexpr unsigned non_blocking = 1;
        number(lanes_.front().comm);
        exchange_ = twin(lanes_.front().comm);
        int least = 0, greatest = 0;  // other ranks wait for what is on these streams
        cuda(calls_->cuda.priority_range(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
        for (void*& stream : streams_)
            cuda(calls_->cuda.stream_create(&stream, non_blocking, greatest), "cudaStreamCreateWithPriority");
        cuda(calls_->cuda.allocate(&scratch_, 8), "cudaMalloc");
    }
    void leave(void* comm, bool in_order) {
        int result = in_order ? calls_->nccl.finalize(comm) : success;
        for (const double since = seconds_now(); in_order && result == in_progress; usleep(20)) {
            if (seconds_now() - since > limit_.limit) break;
            calls_->nccl.async_error(comm, &result);
        }
        if (in_order && result == success)
            calls_->nccl.destroy(comm);
        else
            calls_->nccl.abort(comm);
    }

    operation_under_way& unused() {
        for (const auto& op : operations_)
            if (op->done && !op->held) return *op;
        constexpr unsigned without_timing = 2;
        operations_.push_back(std::make_unique<operation_under_way>());
        operation_under_way& op = *operations_.back();
        op.done = true;
        cuda(calls_->cuda.event_create(&op.ready, without_timing), "cudaEventCreateWithFlags");
        cuda(calls_->cuda.event_create(&op.finished, without_timing), "cudaEventCreateWithFlags");
        return op;
    }

    /// Notes what is over; ends what is overdue or has failed.
    void look() {
        check();
        bool busy = false;
        for (const auto& op : operations_) {
            if (op->done) continue;
            const int status = calls_->cuda.event_query(op->finished);
            if (status == success) {
                op->done = true;
                recorder_.set(op->ticket, record_state::done);
                last_ = *op;
                continue;
            }
            if (status != fathom::cuda::not_ready) cuda(status, described(*op).c_str());
            busy = true;
            if (seconds_now() - op->since > limit_.limit)
                end(limit_.overdue(described(*op)) +
                    (last_.done ? ", the last that was is " + described(last_) : ", nor any before it"));
        }
        if (!busy) return;
        for (const lane& one : lanes_) ask(one.comm);
        ask(exchange_);
    }
    void ask(void* comm) {
        int result = success;
        if (const int status = calls_->nccl.async_error(comm, &result); status != success) result = status;
        if (result != in_progress) nccl(result, comm, "an operation under way");
    }

    /// The collectives' communicator for a message of this size, which is the same on all ranks.
    [[nodiscard]] void* lane_of(integer bytes) const {
        for (const lane& one : lanes_)
            if (bytes <= one.up_to) return one.comm;
        return lanes_.back().comm;
    }

    void issue(const request& what, void* stream) {
        const library& of = calls_->nccl;
        const int format = format_of(what.format), how = operation_of(what.how);
        const auto count = static_cast<std::size_t>(what.count);
        void* const comm = lane_of(what.bytes(size_));
        switch (what.kind) {
            case operation::all_reduce:
                return nccl(of.all_reduce(what.input, what.output, count, format, how, comm, stream), comm,
                            "ncclAllReduce");
            case operation::reduce_scatter:
                return nccl(of.reduce_scatter(what.input, what.output, count, format, how, comm, stream), comm,
                            "ncclReduceScatter");
            case operation::all_gather:
                return nccl(of.all_gather(what.input, what.output, count, format, comm, stream), comm, "ncclAllGather");
            case operation::broadcast:
                return nccl(
                    of.broadcast(what.input, what.output, count, format, static_cast<int>(what.root), comm, stream),
                    comm, "ncclBroadcast");
            case operation::barrier:
                return nccl(of.all_reduce(scratch_, scratch_, 1, format_of(element::byte), 0, comm, stream), comm,
                            "ncclAllReduce of a barrier");
            case operation::all_to_all:
                return issue_all_to_all(what, stream);
            case operation::exchange:
                nccl(of.group_start(), exchange_, "ncclGroupStart");
                for (const message& m : what.messages) issue_message(m, exchange_, stream);
                return nccl(of.group_end(), exchange_, "ncclGroupEnd");
        }
    }
    void issue_all_to_all(const request& what, void* stream) {
        void* const comm = lanes_.back().comm;  // sizes differ between ranks
        const integer width = bytes_of(what.format);
        const bool even = what.send_counts.empty();
        const auto at = [&](std::span<const integer> of, integer peer) { return of[static_cast<std::size_t>(peer)]; };
        nccl(calls_->nccl.group_start(), comm, "ncclGroupStart");
        for (integer peer = 0; peer < size_; ++peer) {
            const integer sent_at = even ? peer * what.count : at(what.send_offsets, peer);
            const integer received_at = even ? peer * what.count : at(what.receive_offsets, peer);
            // A message is not written if it is sent.
            auto* const from = const_cast<std::byte*>(static_cast<const std::byte*>(what.input) + sent_at * width);
            auto* const to = static_cast<std::byte*>(what.output) + received_at * width;
            issue_message({peer, true, what.format, from, even ? what.count : at(what.send_counts, peer)}, comm,
                          stream);
            issue_message({peer, false, what.format, to, even ? what.count : at(what.receive_counts, peer)}, comm,
                          stream);
        }
        nccl(calls_->nccl.group_end(), comm, "ncclGroupEnd");
    }
    void issue_message(const message& m, void* comm, void* stream) {
        if (m.count == 0) return;  // on the other side, too
        const library& of = calls_->nccl;
        const auto count = static_cast<std::size_t>(m.count);
        const int peer = static_cast<int>(m.peer);
        const int result = m.sends ? of.send(m.data, count, format_of(m.format), peer, comm, stream)
                                   : of.receive(m.data, count, format_of(m.format), peer, comm, stream);
        if (result == success || result == in_progress) return;
        of.group_end();
        nccl(result, comm, m.sends ? "ncclSend" : "ncclRecv");
    }

    std::vector<lane> lanes_;
    std::vector<void*> owned_;
    void* exchange_ = nullptr;
    void* streams_[2] = {nullptr, nullptr};  // of collectives, of exchanges
    void* scratch_ = nullptr;
    std::vector<std::unique_ptr<operation_under_way>> operations_;
    std::uint64_t collectives_ = 0, exchanges_ = 0;
    operation_under_way last_;  // that was finished
    std::string who_ = name_, failure_;
};

}  // namespace fathom::comm::nccl::detail
