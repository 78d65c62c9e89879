// Computations become actions with explicit exchanges: where each tensor is sent and received is decided here, once.
#pragma once

#include <fathom/parallel/schedule/detail/parts.hpp>
#include <fathom/parallel/schedule/table.hpp>

namespace fathom::schedule {

/// Where a lowered schedule goes; most_actions and most_transfers say how much it can take.
struct room {
    std::span<action> actions;
    std::span<transfer> transfers;
    std::span<int> begin;  // begin[ranks + 1]
};
constexpr int most_actions(const shape& s, int steps) { return 2 * steps + s.ranks; }
constexpr int most_transfers(const shape& s) { return 4 * s.keys(); }

/// Whether a step names a rank, chunk and micro-batch that there are.
constexpr bool exists(const shape& s, const step& a) {
    return a.what != work::exchange && s.has(a.rank, a.chunk, a.micro_batch) &&
           (a.what != work::overlapped || s.has(a.rank, a.backward_chunk, a.backward_micro_batch));
}

namespace detail {

/// Places the transfers of a schedule. Its parts are functions so that a reader sees one thing at a time; each is
/// linear.
class lowering {
  public:
    constexpr lowering(const shape& s, std::span<const step> steps)
        : s_(s),
          steps_(steps.data()),
          count_(static_cast<int>(steps.size())),
          first_room_(s.ranks + 1),
          order_room_(count_),
          slot_room_(2 * (count_ + s.ranks)),
          moment_room_(2 * s.keys()) {}

    constexpr table write(const room& to) {
        if (sort()) place();
        return emit(to);
    }

  private:
    struct moment {  // of one transfer
        int time = 0;
        int maker = 0, reader = 0;            // actions
        int send_slot = 0, receive_slot = 0;  // before which actions they are
        cargo what = cargo::activation;
    };

    /// Groups the steps by rank. Returns whether all name what is there.
    constexpr bool sort() {
        scratch<int> cursor_room(s_.ranks);
        int* cursor = cursor_room.data();
        bool sound = s_.sound();
        for (int i = 0; i < count_; ++i) {
            const int rank = steps_[i].rank;
            sound = sound && exists(s_, steps_[i]);
            ++first_[(rank >= 0 && rank < s_.ranks ? rank : 0) + 1];
        }
        for (int rank = 0; rank < s_.ranks; ++rank) first_[rank + 1] += cursor[rank] = first_[rank];
        for (int i = 0; i < count_; ++i) {
            const int rank = steps_[i].rank;
            order_[cursor[rank >= 0 && rank < s_.ranks ? rank : 0]++] = i;
        }
        return sound;
    }

    constexpr void place() {
        scratch<parts> parts_room(count_);
        scratch<double> begin_room(count_), end_room(count_);
        scratch<int> maker_room(2 * s_.keys()), reader_room(2 * s_.keys());
        parts* actions = parts_room.data();
        double *begin = begin_room.data(), *end = end_room.data();
        // Who makes and who reads each tensor, plus 1: both by the stage that reads it.
        int *makers = maker_room.data(), *readers = reader_room.data();
        const int keys = s_.keys(), stages = s_.stages();
        const dictionary words(s_, costs{});
        for (int i = 0; i < count_; ++i) {
            const parts& a = actions[i] = words.of(steps_[order_[i]]);
            if (a.forward >= 0) {
                readers[a.forward] = i + 1;
                if ((a.forward + 1) % stages != 0) makers[a.forward + 1] = i + 1;
            }
            if (a.input) {
                readers[keys + a.back] = i + 1;
                if (a.back % stages != 0) makers[keys + a.back - 1] = i + 1;
            }
        }
        const bool whole = run(s_, first_, actions, begin, end);
        double last = 0;
        for (int i = 0; i < count_; ++i)
            if (end[i] > last) last = end[i];
        for (int i = 0; !whole && i < count_; ++i)  // what waits for ever comes after all else
            if (end[i] < 0) begin[i] = last + i, end[i] = last + i + 1;

        for (int tensor = 0; tensor < 2 * keys; ++tensor) {
            const int maker = makers[tensor] - 1, reader = readers[tensor] - 1;
            if (maker < 0 || reader < 0) continue;
            const int from = steps_[order_[maker]].rank, to = steps_[order_[reader]].rank;
            if (from == to) continue;
            const int first = first_[to], stop = first_[from + 1];
            int send = maker + 1, receive = reader;
            double time = end[maker];
            while (receive > first && begin[receive - 1] >= time) --receive;
            if (receive > first && end[receive - 1] > time) time = end[receive - 1];
            while (send < stop && begin[send] < time) ++send;
            moments_[found_++] = {static_cast<int>(time),
                                  maker,
                                  reader,
                                  send + from,
                                  receive + to,
                                  tensor < keys ? cargo::activation : cargo::gradient};
            ++sends_[send + from];
            ++receives_[receive + to];
        }
        end_ = static_cast<int>(last) + (whole ? 0 : count_);
    }

    constexpr table emit(const room& to) {
        action* out = to.actions.data();
        int actions = 0, transfers = 0;
        for (int rank = 0; rank < s_.ranks; ++rank) {
            to.begin.data()[rank] = actions;
            for (int i = first_[rank]; i <= first_[rank + 1]; ++i) {
                const int slot = i + rank, sends = sends_[slot], receives = receives_[slot];
                if (sends + receives > 0) {
                    out[actions++] = {{rank, work::exchange}, transfers, sends, receives};
                    sends_[slot] = transfers;
                    receives_[slot] = transfers + sends;
                    transfers += sends + receives;
                }
                if (i < first_[rank + 1]) out[actions++] = {steps_[order_[i]]};
            }
        }
        to.begin.data()[s_.ranks] = actions;
        fill(to.transfers.data());
        return {s_, to.actions.first(static_cast<unsigned>(actions)),
                to.transfers.first(static_cast<unsigned>(transfers)), to.begin};
    }

    /// In the order of moments, which both sides of every channel then share.
    constexpr void fill(transfer* out) {
        scratch<int> at_room(end_ + 2), by_time_room(found_);
        int *at = at_room.data(), *by_time = by_time_room.data();
        for (int i = 0; i < found_; ++i) ++at[moments_[i].time + 1];
        for (int time = 0; time <= end_; ++time) at[time + 1] += at[time];
        for (int i = 0; i < found_; ++i) by_time[at[moments_[i].time]++] = i;
        for (int i = 0; i < found_; ++i) {
            const moment& m = moments_[by_time[i]];
            const step &maker = steps_[order_[m.maker]], &reader = steps_[order_[m.reader]];
            const bool forward = m.what == cargo::activation;
            const bool maker_back = !forward && maker.what == work::overlapped;
            const bool reader_back = !forward && reader.what == work::overlapped;
            const int micro_batch = maker_back ? maker.backward_micro_batch : maker.micro_batch;
            out[sends_[m.send_slot]++] = {m.what, reader.rank, micro_batch,
                                          maker_back ? maker.backward_chunk : maker.chunk};
            out[receives_[m.receive_slot]++] = {m.what, maker.rank, micro_batch,
                                                reader_back ? reader.backward_chunk : reader.chunk};
        }
    }

    const shape& s_;
    const step* steps_;
    int count_;
    scratch<int> first_room_, order_room_, slot_room_;
    scratch<moment> moment_room_;
    int* first_ = first_room_.data();  // of each rank in order_
    int* order_ = order_room_.data();
    // Transfers of each slot (before each action, and after the last of each rank); then where they go.
    int* sends_ = slot_room_.data();
    int* receives_ = slot_room_.data() + count_ + s_.ranks;
    moment* moments_ = moment_room_.data();
    int found_ = 0, end_ = 0;
};

}  // namespace detail

/// Writes the steps with their exchanges into `to`. Every transfer gets a moment of the timeline: the first at which
/// its tensor exists and its reader is between two computations. All ranks do what begins before that moment, then the
/// transfer, then the rest, so there is one order that all of them follow and none can wait in a circle. Neighbouring
/// transfers of a rank become one exchange. Broken schedules are lowered, too: `prove` says what is wrong with them.
constexpr table lower(const shape& s, std::span<const step> steps, const room& to) {
    return detail::lowering{s, steps}.write(to);
}

}  // namespace fathom::schedule
