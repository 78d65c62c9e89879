// How collectives become messages: each pair of ranks first agrees on what it is in, so that who differs or is missing
// has a name, and sums are added here, in the order of ranks, which MPI's own reductions do not promise.
#pragma once

#include <array>
#include <cstring>
#include <deque>
#include <fathom/comm/detail/check_request.hpp>
#include <fathom/comm/detail/ordered_reduction.hpp>
#include <fathom/comm/flight_recorder.hpp>
#include <fathom/comm/mpi/detail/transfer.hpp>
#include <fathom/comm/watchdog.hpp>
#include <fathom/core/seconds_now.hpp>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace fathom::comm::mpi::detail {

using comm::detail::disagreement;
using comm::detail::terms;

/// What a rank tells another before data: its terms (of a message: the length), and words for the other's errors.
struct introduction {
    terms about;
    std::uint64_t sequence = 0;
    std::array<char, 48> label{};
};

/// A rank's place in a communicator.
struct seat {
    MPI_Comm comm = MPI_COMM_NULL;
    std::string name;
    integer rank = 0;
    std::vector<integer> ranks;  // [rank], the job's numbers
    std::uint64_t collectives = 0, exchanges = 0;
    std::vector<std::uint64_t> sends, receives;  // [peer], messages issued so far
    flight_recorder recorder;

    [[nodiscard]] integer size() const { return static_cast<integer>(ranks.size()); }
    [[nodiscard]] integer job_rank(integer of) const { return ranks[static_cast<std::size_t>(of)]; }
};

/// What an operation still has to hear from one rank (of an exchange: for one message).
struct part {
    MPI_Request heard = MPI_REQUEST_NULL;
    integer peer = 0;
    int tag = 0;
    bool agreed = false;
    introduction mine, theirs;
};

struct operation_under_way {
    seat* at = nullptr;
    request what;
    std::uint64_t sequence = 0, ticket = 0;
    bool summed = false, done = false;
    std::vector<part> parts;  // MPI writes into them: reserved before the first is used
    std::vector<transfer> transfers;
    std::vector<char> gathered;  // other ranks' numbers before they are added; keeps its memory
};

/// The operations of this rank on communicators that were split from one.
class progress {
  public:
    explicit progress(watchdog limit) : limit_(limit) {}

    operation_under_way& start(seat& at, const request& what) {
        if (!broken_.empty()) fail(broken_);
        comm::detail::check_request(what, at.size(), at.name.c_str());
        if (unused_.empty()) unused_.push_back(&storage_.emplace_back());
        operation_under_way& op = *unused_.back();
        unused_.pop_back();
        op.at = &at;
        op.what = what;
        op.summed = op.done = false;
        op.parts.clear();
        op.transfers.clear();
        op.sequence = what.kind == operation::exchange ? at.exchanges++ : at.collectives++;
        op.ticket = at.recorder.begin(what, op.sequence, at.size());
        pending_.push_back(&op);
        try {
            if (what.kind == operation::exchange)
                issue_exchange(op);
            else
                issue_collective(op);
            advance_all();
        } catch (...) {
            release(op);
            throw;
        }
        return op;
    }
    bool done(const operation_under_way& op) {
        if (!op.done) advance_all();
        return op.done;
    }
    void wait(const operation_under_way& op) {
        for (int spin = 0; spin < 1'000; ++spin)
            if (done(op)) return;
        const auto began = seconds_now();
        while (!done(op)) {
            if (seconds_now() - began >= limit_.limit) give_up(report(op));
            std::this_thread::yield();
        }
    }
    /// The handle is gone. What MPI may still write into is called back; the communicators are of no more use.
    void release(operation_under_way& op) {
        if (!op.done) {
            if (broken_.empty()) broken_ = text_of("rank ", job_rank(op), " left ", described(op), " unfinished");
            for (transfer& each : op.transfers) call_back(each.handle, each.receives);
            for (part& each : op.parts) call_back(each.heard, true);
        }
        std::erase(pending_, &op);  // done ones stay there when an error cut `advance_all` short
        unused_.push_back(&op);
    }
    [[nodiscard]] const watchdog& limit() const { return limit_; }

  private:
    static constexpr int turns = 5'000;  // tags repeat after so many operations: three each, all below MPI's 32,767
    static int collective_tag(const operation_under_way& op) { return static_cast<int>(op.sequence % turns) * 3; }
    static int message_tag(std::uint64_t number) { return 3 * turns + static_cast<int>(number % turns) * 3; }

    static integer job_rank(const operation_under_way& op) { return op.at->job_rank(op.at->rank); }
    static std::string described(const operation_under_way& op) {
        return comm::detail::described(op.what.kind, op.sequence, op.at->name.c_str(), op.what.label);
    }
    static char* at(void* start, integer bytes) { return static_cast<char*>(start) + bytes; }
    static const char* at(const void* start, integer bytes) { return static_cast<const char*>(start) + bytes; }
    static void copy(void* to, const void* from, integer bytes) {
        if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
    }
    [[noreturn]] void give_up(const std::string& why) {
        if (broken_.empty()) broken_ = why;
        throw error{broken_};
    }
    static void call_back(MPI_Request& handle, bool receives) {
        if (handle == MPI_REQUEST_NULL) return;
        // A send cannot be called back, it only reads. A receive that has begun may never end: its process may be
        // stopped.
        int done = 0;
        if (receives) MPI_Cancel(&handle);
        for (int look = 0; receives && done == 0 && look < 1'000; ++look) MPI_Test(&handle, &done, MPI_STATUS_IGNORE);
        if (done == 0) MPI_Request_free(&handle);
    }

    static void introduce(operation_under_way& op, part& to, const terms& about) {
        to.mine.about = about;
        to.mine.sequence = op.sequence;
        std::strncpy(to.mine.label.data(), op.what.label, to.mine.label.size() - 1);
        send(op.transfers, op.at->comm, to.peer, to.tag, &to.mine, sizeof to.mine);
    }
    static void listen(operation_under_way& op, part& to) {
        check(MPI_Irecv(&to.theirs, sizeof to.theirs, MPI_BYTE, static_cast<int>(to.peer), to.tag, op.at->comm,
                        &to.heard),
              "MPI_Irecv");
    }

    /// Small buffers go to every rank whole, and each adds them up; large ones are added up in pieces, one a rank.
    static bool in_pieces(const request& what) {
        return what.kind == operation::all_reduce && what.count * bytes_of(what.format) > 4'096;
    }
    struct range {
        integer begin, count;
    };
    static range piece_of(const operation_under_way& op, integer rank) {
        const integer piece = round_up(pieces(op.what.count, op.at->size()), 64);
        const integer begin = std::min(rank * piece, op.what.count);
        return {begin, std::min(piece, op.what.count - begin)};
    }
    /// What goes to a rank in the first round.
    static std::pair<const char*, integer> outgoing(const operation_under_way& op, integer to) {
        const request& what = op.what;
        const integer size = bytes_of(what.format);
        switch (what.kind) {
            case operation::all_reduce:
                if (!in_pieces(what)) return {at(what.input, 0), what.count * size};
                return {at(what.input, piece_of(op, to).begin * size), piece_of(op, to).count * size};
            case operation::reduce_scatter:
                return {at(what.input, to * what.count * size), what.count * size};
            case operation::all_gather:
                return {at(what.input, 0), what.count * size};
            case operation::broadcast:
                return {at(what.input, 0), what.root == op.at->rank && to != what.root ? what.count * size : 0};
            case operation::all_to_all: {
                const auto entry = static_cast<std::size_t>(to);
                if (what.send_counts.empty()) return {at(what.input, to * what.count * size), what.count * size};
                return {at(what.input, what.send_offsets[entry] * size), what.send_counts[entry] * size};
            }
            case operation::exchange:
            case operation::barrier:
                break;
        }
        return {nullptr, 0};
    }
    /// Where what comes from a rank in the first round is put.
    static std::pair<char*, integer> incoming(operation_under_way& op, integer from) {
        const request& what = op.what;
        const integer size = bytes_of(what.format);
        switch (what.kind) {
            case operation::all_reduce:
            case operation::reduce_scatter: {
                const integer count = in_pieces(what) ? piece_of(op, op.at->rank).count : what.count;
                return {op.gathered.data() + from * count * size, count * size};
            }
            case operation::all_gather:
                return {at(what.output, from * what.count * size), what.count * size};
            case operation::broadcast:
                return {at(what.output, 0), what.root == from && from != op.at->rank ? what.count * size : 0};
            case operation::all_to_all: {
                const auto entry = static_cast<std::size_t>(from);
                if (what.receive_counts.empty()) return {at(what.output, from * what.count * size), what.count * size};
                return {at(what.output, what.receive_offsets[entry] * size), what.receive_counts[entry] * size};
            }
            case operation::exchange:
            case operation::barrier:
                break;
        }
        return {nullptr, 0};
    }

    static void issue_collective(operation_under_way& op) {
        const integer me = op.at->rank, ranks = op.at->size();
        op.parts.reserve(static_cast<std::size_t>(ranks));
        if (op.what.kind == operation::all_reduce || op.what.kind == operation::reduce_scatter) {
            const auto bytes = static_cast<std::size_t>(ranks * outgoing(op, me).second);
            if (op.gathered.size() < bytes) op.gathered.resize(bytes);
        }
        for (integer n = 1; n < ranks; ++n) {  // each begins with its next, so that not all send to one
            part& to = op.parts.emplace_back();
            to.peer = (me + n) % ranks;
            to.tag = collective_tag(op);
            listen(op, to);
            introduce(op, to, comm::detail::terms_of(op.what, to.peer));
            const auto [data, bytes] = outgoing(op, to.peer);
            send(op.transfers, op.at->comm, to.peer, to.tag + 1, data, bytes);
        }
        const auto [data, bytes] = outgoing(op, me);
        copy(incoming(op, me).first, data, bytes);
    }
    static void issue_exchange(operation_under_way& op) {
        op.parts.reserve(op.what.messages.size());
        for (const message& m : op.what.messages) {
            part& to = op.parts.emplace_back();
            to.peer = m.peer;
            to.tag = message_tag((m.sends ? op.at->sends : op.at->receives)[static_cast<std::size_t>(m.peer)]++);
            to.agreed = m.sends;
            if (!m.sends) {
                listen(op, to);
                continue;
            }
            introduce(op, to, {operation::exchange, m.format, reduction::sum, 0, m.bytes(), 0, 0});
            send(op.transfers, op.at->comm, m.peer, to.tag + 1, m.data, m.bytes());
        }
    }

    void advance_all() {
        if (!broken_.empty()) throw error{broken_};
        for (operation_under_way* op : pending_) advance(*op);
        std::erase_if(pending_, [](const operation_under_way* op) { return op->done; });
    }
    void advance(operation_under_way& op) {
        bool all_agreed = true;
        for (std::size_t n = 0; n < op.parts.size(); ++n) {
            part& each = op.parts[n];
            if (!each.agreed && hears(each)) agree(op, n);
            all_agreed = all_agreed && each.agreed;
        }
        if (!finished(op.transfers) || !all_agreed) return;
        if (!op.summed) {
            op.summed = true;
            sum(op);
            if (!finished(op.transfers)) return;
        }
        op.done = true;
        op.at->recorder.set(op.ticket, record_state::done);
    }
    static bool hears(part& from) {
        int done = 0;
        check(MPI_Test(&from.heard, &done, MPI_STATUS_IGNORE), "MPI_Test");
        return done != 0;
    }
    /// The other has come: its data is received if it means the same.
    void agree(operation_under_way& op, std::size_t number) {
        part& from = op.parts[number];
        const introduction& theirs = from.theirs;
        const bool exchange = op.what.kind == operation::exchange;
        char* data = nullptr;
        integer bytes = 0;
        disagreement found;
        if (exchange) {
            const message& m = op.what.messages[number];
            data = static_cast<char*>(m.data);
            bytes = m.bytes();
            if (theirs.about.bytes != bytes || theirs.about.format != m.format)
                found = {true, text_of(" and expects ", bytes, " bytes (", name_of(m.format), ')'),
                         text_of(" and sends ", theirs.about.bytes, " bytes (", name_of(theirs.about.format), ')')};
        } else {
            std::tie(data, bytes) = incoming(op, from.peer);
            found = disagreement_of(comm::detail::terms_of(op.what, from.peer), theirs.about);
        }
        if (found)
            give_up(disagreement_text(
                found, job_rank(op), described(op), op.at->job_rank(from.peer),
                comm::detail::described(theirs.about.kind, theirs.sequence, op.at->name.c_str(), theirs.label.data())));
        from.agreed = true;
        op.at->recorder.set(op.ticket, record_state::running);
        receive(op.transfers, op.at->comm, from.peer, from.tag + 1, data, bytes);
    }
    /// All numbers are here: adds them in the order of ranks; pieces of a large buffer then go to every rank.
    static void sum(operation_under_way& op) {
        const request& what = op.what;
        if (what.kind != operation::all_reduce && what.kind != operation::reduce_scatter) return;
        const integer size = bytes_of(what.format), me = op.at->rank;
        const range mine = in_pieces(what) ? piece_of(op, me) : range{0, what.count};
        comm::detail::ordered_reduction(
            what.format, op.at->size(), 0, mine.count, what.how,
            [&](integer of) { return op.gathered.data() + of * mine.count * size; },
            [&](const void* result, integer from, integer count) {
                copy(at(what.output, (mine.begin + from) * size), result, count * size);
            });
        if (!in_pieces(what)) return;
        for (part& to : op.parts) {
            const range theirs = piece_of(op, to.peer);
            receive(op.transfers, op.at->comm, to.peer, to.tag + 2, at(what.output, theirs.begin * size),
                    theirs.count * size);
            send(op.transfers, op.at->comm, to.peer, to.tag + 2, at(what.output, mine.begin * size), mine.count * size);
        }
    }

    std::string report(const operation_under_way& op) {
        std::vector<integer> absent;
        std::vector<rank_standing> standings{{job_rank(op), rank_standing::state::waits, described(op)}};
        const auto seen = [&](integer rank) {
            return std::find(absent.begin(), absent.end(), rank) != absent.end() ||
                   std::any_of(standings.begin(), standings.end(), [&](const auto& each) { return each.rank == rank; });
        };
        for (const part& each : op.parts)
            if (const integer rank = op.at->job_rank(each.peer); !each.agreed && !seen(rank)) absent.push_back(rank);
        for (const transfer& each : op.transfers)
            if (const integer rank = op.at->job_rank(each.peer); !seen(rank))
                standings.push_back({rank, rank_standing::state::stalls, {}});
        return watchdog::report(limit_.overdue(described(op)), absent, standings);
    }

    watchdog limit_;
    std::deque<operation_under_way> storage_;
    std::vector<operation_under_way*> unused_, pending_;
    std::string broken_;
};

}  // namespace fathom::comm::mpi::detail
