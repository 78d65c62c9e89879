// The pipeline schedules by name: each word says what it needs and writes what each rank computes, in order.
#pragma once

#include <fathom/core/bytes.hpp>
#include <fathom/parallel/detail/scratch.hpp>
#include <fathom/parallel/schedule/shape.hpp>
#include <fathom/parallel/schedule/step.hpp>

namespace fathom {

namespace rule {

template <class Schedule, integer Ranks, integer MicroBatches> struct pipeline_is_not_empty {
    static_assert(Schedule::fits(Ranks, MicroBatches),
                  "fathom: a pipeline needs ranks and micro-batches. fix: pick at least one of each.");
};
template <class Schedule, integer Ranks, integer MicroBatches> struct rounds_are_full {
    static_assert(Schedule::fits(Ranks, MicroBatches),
                  "fathom: interleaved 1F1B goes in rounds of one micro-batch a rank. fix: pick at least as many "
                  "micro-batches as ranks.");
};
template <class Schedule, integer Ranks, integer MicroBatches> struct both_ends_are_fed {
    static_assert(Schedule::fits(Ranks, MicroBatches),
                  "fathom: DualPipe is fed from both ends. fix: pick an even number of ranks, and an even number of "
                  "micro-batches that is at least twice the ranks.");
};
template <class Schedule, integer Ranks, integer MicroBatches> struct way_back_is_fed {
    static_assert(Schedule::fits(Ranks, MicroBatches),
                  "fathom: DualPipeV passes each rank twice. fix: pick at least twice as many micro-batches as ranks.");
};

}  // namespace rule

namespace schedule {

/// Where a schedule writes the steps of one rank; without room it counts them.
class writer {
  public:
    constexpr writer(const schedule::shape& s, step* room) : shape(s), room_(room) {}
    constexpr void turn_to(int r) { rank = r; }

    constexpr void forward(int micro_batch, int chunk = 0) { put({rank, work::forward, micro_batch, chunk}); }
    constexpr void backward_input(int micro_batch, int chunk = 0) {
        put({rank, work::backward_input, micro_batch, chunk});
    }
    constexpr void backward_weight(int micro_batch, int chunk = 0) {
        put({rank, work::backward_weight, micro_batch, chunk});
    }
    constexpr void backward(int micro_batch, int chunk = 0) { put({rank, work::backward, micro_batch, chunk}); }
    constexpr void overlapped(int forward, int chunk, int backward, int backward_chunk) {
        put({rank, work::overlapped, forward, chunk, backward, backward_chunk});
    }
    /// A step as it is, of whatever rank.
    constexpr void put(const step& s) {
        if (room_ != nullptr) room_[count_] = s;
        ++count_;
    }
    [[nodiscard]] constexpr int count() const { return count_; }

    const schedule::shape shape;
    int rank = 0;

  private:
    step* room_;
    int count_ = 0;
};

namespace detail {

constexpr int least(int a, int b) { return a < b ? a : b; }

/// The eight parts of DualPipe's order (DeepSeek-V3 technical report) for a rank at distance h from the end where it
/// takes micro-batches in; `half` ranks lie between that end and where the two streams turn, and each stream has
/// `count` micro-batches. Stream 0 is the one that comes in at the near end.
class dual_pipe_writer {
  public:
    constexpr dual_pipe_writer(writer& to, int half, int near_chunk, int stream_offset)
        : to_(to), half_(half), near_(near_chunk), offset_(stream_offset), waiting_room_(2 * half) {}

    constexpr void write(int h, int count) {
        const int half = half_;
        const bool middle = h == half - 1;
        for (int i = 0; i < 2 * (half - h - 1); ++i) forward(0);
        for (int i = 0; i < h + 1; ++i) forward(0), forward(1);
        for (int i = 0; i < half - h - 1; ++i) backward_input(1), weight(), forward(1);
        for (int i = 0; i < count - 2 * half + h + 1; ++i) {
            if (i == 0 && middle)
                forward(0), backward(1);
            else
                both(0, 1);
            both(1, 0);
        }
        for (int i = 0; i < half - h - 1; ++i) backward(1), both(1, 0);
        for (int i = 0; i < 2 * (h + 1); ++i) {
            if (i < h + 1)
                backward((i + 1) % 2);
            else
                backward_input((i + 1) % 2);
        }
        for (int i = 0; i < half - h - 1; ++i) weight(), backward_input(0);
        for (int i = 0; i < h + 1; ++i) weight();
    }

  private:
    struct waiting {
        int micro_batch = 0, chunk = 0;
    };
    [[nodiscard]] constexpr int chunk(int stream) const { return near_ ^ stream; }
    constexpr int next(int (&counters)[2], int stream) const { return counters[stream]++ + offset_ * chunk(stream); }

    constexpr void forward(int stream) { to_.forward(next(forwards_, stream), chunk(stream)); }
    constexpr void backward(int stream) { to_.backward(next(backwards_, stream), chunk(stream)); }
    constexpr void both(int forward, int backward) {
        const int f = next(forwards_, forward), b = next(backwards_, backward);
        to_.overlapped(f, chunk(forward), b, chunk(backward));
    }
    constexpr void backward_input(int stream) {
        const int micro_batch = next(backwards_, stream);
        to_.backward_input(micro_batch, chunk(stream));
        waiting_[last_++] = {micro_batch, chunk(stream)};
    }
    /// Of what has waited longest.
    constexpr void weight() {
        to_.backward_weight(waiting_[first_].micro_batch, waiting_[first_].chunk);
        ++first_;
    }
    writer& to_;
    int half_, near_, offset_;
    fathom::detail::scratch<waiting> waiting_room_;
    waiting* waiting_ = waiting_room_.data();
    int first_ = 0, last_ = 0;
    int forwards_[2]{}, backwards_[2]{};
};

/// Interleaved 1F1B: micro-batches go in rounds of one a rank, a chunk after the other; the first round takes what is
/// over.
constexpr void write_interleaved(writer& to) {
    const int ranks = to.shape.ranks, count = to.shape.micro_batches, chunks = to.shape.chunks, total = chunks * count;
    const int first_round = ranks + count % ranks;
    const auto place = [&](int i, bool back) {
        int round = first_round, begin = 0;
        if (i >= chunks * first_round) {
            round = ranks;
            begin = first_round + (i - chunks * first_round) / (chunks * ranks) * ranks;
            i = (i - chunks * first_round) % (chunks * ranks);
        }
        const int chunk = i / round;
        return step{0, work::forward, begin + i % round, back ? chunks - 1 - chunk : chunk};
    };
    const auto forward = [&](int i) { to.forward(place(i, false).micro_batch, place(i, false).chunk); };
    const auto backward = [&](int i) { to.backward(place(i, true).micro_batch, place(i, true).chunk); };
    const int ahead =
        chunks == 1 ? ranks - 1 - to.rank : least(2 * (ranks - 1 - to.rank) + (chunks - 1) * first_round, total);
    for (int i = 0; i < ahead; ++i) forward(i);
    for (int i = ahead; i < total; ++i) forward(i), backward(i - ahead);
    for (int i = total - ahead; i < total; ++i) backward(i);
}

}  // namespace detail

/// All forwards, then all backwards (Huang et al., 2019): simple, and every micro-batch's activations are alive at
/// once.
struct gpipe {
    static constexpr const char* name = "gpipe";
    static constexpr int chunks = 1;
    static constexpr route way = route::loop;
    static constexpr bool fits(integer ranks, integer micro_batches) { return ranks >= 1 && micro_batches >= 1; }
    template <integer Ranks, integer MicroBatches>
    using sizes = rule::pipeline_is_not_empty<gpipe, Ranks, MicroBatches>;
    static constexpr const char* needs = "at least one rank and one micro-batch";
    static constexpr void write(writer& to) {
        for (int i = 0; i < to.shape.micro_batches; ++i) to.forward(i);
        for (int i = 0; i < to.shape.micro_batches; ++i) to.backward(i);
    }
};

/// One forward, one backward (Narayanan et al., 2019): at most as many activations as ranks.
struct one_f_one_b : gpipe {
    static constexpr const char* name = "one_f_one_b";
    static constexpr void write(writer& to) {
        const int count = to.shape.micro_batches, ahead = detail::least(to.shape.ranks - 1 - to.rank, count);
        for (int i = 0; i < ahead; ++i) to.forward(i);
        for (int i = ahead; i < count; ++i) to.forward(i), to.backward(i - ahead);
        for (int i = count - ahead; i < count; ++i) to.backward(i);
    }
};

/// 1F1B over V chunks a rank (Narayanan et al., 2021): the bubble is divided by V; more activations, V times the
/// traffic.
template <int V> struct interleaved_one_f_one_b {
    static_assert(V >= 1, "fathom: a rank holds at least one chunk. fix: pick interleaved_one_f_one_b<2> or more.");
    static constexpr const char* name = "interleaved_one_f_one_b";
    static constexpr int chunks = V;
    static constexpr route way = route::loop;
    static constexpr bool fits(integer ranks, integer micro_batches) { return ranks >= 1 && micro_batches >= ranks; }
    template <integer Ranks, integer MicroBatches>
    using sizes = rule::rounds_are_full<interleaved_one_f_one_b, Ranks, MicroBatches>;
    static constexpr const char* needs = "at least as many micro-batches as ranks";
    static constexpr void write(writer& to) { detail::write_interleaved(to); }
};

/// 1F1B with the weights' gradients put off to fill the bubble, within 1F1B's memory (Qi et al., 2023; V3's ZB1P).
struct zb_h1 : gpipe {
    static constexpr const char* name = "zb_h1";
    static constexpr void write(writer& to) {
        const int count = to.shape.micro_batches, ahead = detail::least(to.shape.ranks - 1 - to.rank, count);
        int weights = 0;
        const auto backward = [&](int i) {
            to.backward_input(i);
            if (i >= to.rank) to.backward_weight(weights++);
        };
        for (int i = 0; i < ahead; ++i) to.forward(i);
        for (int i = ahead; i < count; ++i) to.forward(i), backward(i - ahead);
        for (int i = count - ahead; i < count; ++i) backward(i);
        while (weights < count) to.backward_weight(weights++);
    }
};

/// Two chunks a rank, down and back (Qi et al., 2023): no rank idles between its first and last action when forward,
/// input's and weights' gradient take equally long; memory as 1F1B.
struct zb_v {
    static constexpr const char* name = "zb_v";
    static constexpr int chunks = 2;
    static constexpr route way = route::v;
    static constexpr bool fits(integer ranks, integer micro_batches) { return ranks >= 1 && micro_batches >= 1; }
    template <integer Ranks, integer MicroBatches> using sizes = rule::pipeline_is_not_empty<zb_v, Ranks, MicroBatches>;
    static constexpr const char* needs = gpipe::needs;
    /// Written for at least as many micro-batches as fill the pipeline; those that are not there are left out.
    static constexpr void write(writer& to) {
        const int ranks = to.shape.ranks, real = to.shape.micro_batches, fill = 2 * ranks - 1;
        const int count = real > fill ? real : fill;
        int forwards[2]{}, inputs[2]{}, weights[2]{};
        const auto forward = [&](int chunk) {
            if (const int i = forwards[chunk]++; i < real) to.forward(i, chunk);
        };
        const auto input = [&](int chunk) {
            if (const int i = inputs[chunk]++; i < real) to.backward_input(i, chunk);
        };
        const auto weight = [&](int chunk) {
            if (const int i = weights[chunk]++; i < real) to.backward_weight(i, chunk);
        };
        for (int i = 0; i < 2 * (ranks - to.rank) - 1; ++i) forward(0);
        for (int i = 0; i < to.rank; ++i) forward(1), forward(0);
        for (int i = 0; i < ranks - to.rank; ++i) forward(1), input(1), weight(1);
        while (forwards[1] < count) {
            if (forwards[0] < count) forward(0);
            input(0), weight(0), forward(1), input(1), weight(1);
        }
        for (int i = 0; i < to.rank; ++i) input(0), input(1);
        while (inputs[0] < count) input(0), weight(0);
        while (weights[1] < count) weight(1);
        while (weights[0] < count) weight(0);
    }
};

/// Micro-batches from both ends, forward and backward of opposite streams overlapped (DeepSeek-V3 technical report):
/// hides the experts' all-to-all; two copies of the parameters.
struct dual_pipe {
    static constexpr const char* name = "dual_pipe";
    static constexpr int chunks = 2;
    static constexpr route way = route::two_way;
    static constexpr bool fits(integer ranks, integer micro_batches) {
        return ranks >= 2 && ranks % 2 == 0 && micro_batches % 2 == 0 && micro_batches >= 2 * ranks;
    }
    template <integer Ranks, integer MicroBatches>
    using sizes = rule::both_ends_are_fed<dual_pipe, Ranks, MicroBatches>;
    static constexpr const char* needs =
        "an even number of ranks, and an even number of micro-batches of at least twice that";
    static constexpr void write(writer& to) {
        const int ranks = to.shape.ranks, half = ranks / 2, count = to.shape.micro_batches / 2;
        const bool upper = to.rank >= half;
        detail::dual_pipe_writer{to, half, upper, count}.write(upper ? ranks - 1 - to.rank : to.rank, count);
    }
};

/// DualPipe cut in half: down and back over half the ranks, with the second copy of the parameters gone.
struct dual_pipe_v {
    static constexpr const char* name = "dual_pipe_v";
    static constexpr int chunks = 2;
    static constexpr route way = route::v;
    static constexpr bool fits(integer ranks, integer micro_batches) {
        return ranks >= 1 && micro_batches >= 2 * ranks;
    }
    template <integer Ranks, integer MicroBatches>
    using sizes = rule::way_back_is_fed<dual_pipe_v, Ranks, MicroBatches>;
    static constexpr const char* needs = "at least twice as many micro-batches as ranks";
    static constexpr void write(writer& to) {
        detail::dual_pipe_writer{to, to.shape.ranks, 0, 0}.write(to.rank, to.shape.micro_batches);
    }
};

/// The sizes of a schedule that fits.
template <class Schedule> constexpr shape shape_of(int ranks, int micro_batches) {
    return {ranks, micro_batches, Schedule::chunks, Schedule::way};
}
/// Writes all ranks' steps to `room`, or counts them when it is null. Returns their number.
template <class Schedule> constexpr int write(const shape& s, step* room) {
    writer to(s, room);
    for (int rank = 0; rank < s.ranks; ++rank) {
        to.turn_to(rank);
        Schedule::write(to);
    }
    return to.count();
}

}  // namespace schedule

}  // namespace fathom
