// An action with its names looked up once: constant evaluation counts every call, so inner loops make none.
#pragma once

#include <fathom/parallel/detail/scratch.hpp>
#include <fathom/parallel/schedule/costs.hpp>
#include <fathom/parallel/schedule/shape.hpp>

namespace fathom::schedule::detail {

using fathom::detail::scratch;

/// What an action works on, as keys of the shape; -1: it has no such part.
struct parts {
    int forward = -1;
    int back = -1;
    bool input = false;   // it has the input's gradient
    bool weight = false;  // it has the weights' gradient
    double takes = 0;
};

/// Looks actions up in tables of a shape and its costs.
class dictionary {
  public:
    constexpr dictionary(const shape& s, const costs& c)
        : stages(s.stages()), keys(s.keys()), chunks_(s.chunks), stage_room_(s.ranks * s.chunks) {
        for (int rank = 0; rank < s.ranks; ++rank)
            for (int chunk = 0; chunk < s.chunks; ++chunk) stage_[rank * s.chunks + chunk] = s.stage_of(rank, chunk);
        for (int w = 0; w <= static_cast<int>(work::exchange); ++w) takes_[w] = c.of(static_cast<work>(w));
    }
    [[nodiscard]] constexpr int stage_of(int rank, int chunk) const { return stage_[rank * chunks_ + chunk]; }
    [[nodiscard]] constexpr parts of(const step& a) const {
        const int key = a.micro_batch * stages + stage_[a.rank * chunks_ + a.chunk];
        const double takes = takes_[static_cast<int>(a.what)];
        switch (a.what) {
            case work::forward:
                return {key, -1, false, false, takes};
            case work::backward_input:
                return {-1, key, true, false, takes};
            case work::backward_weight:
                return {-1, key, false, true, takes};
            case work::backward:
                return {-1, key, true, true, takes};
            case work::overlapped:
                return {key, a.backward_micro_batch * stages + stage_[a.rank * chunks_ + a.backward_chunk], true, true,
                        takes};
            case work::exchange:
                break;
        }
        return {};
    }

    const int stages, keys;

  private:
    int chunks_;
    scratch<int> stage_room_;
    int* stage_ = stage_room_.data();
    double takes_[static_cast<int>(work::exchange) + 1]{};
};

/// Times of actions [begin[r], begin[r + 1]) of each rank r when transfers take no time. What can never begin keeps an
/// end of -1. Returns whether all could.
constexpr bool run(const shape& s, const int* first, const parts* actions, double* begin, double* end) {
    const int stages = s.stages(), ranks = s.ranks, count = first[ranks];
    // Times at which outputs and input gradients exist, plus 1; 0 while they do not.
    scratch<double> forward_room(s.keys()), backward_room(s.keys()), clock_room(ranks);
    scratch<int> next_room(ranks);
    double *forward = forward_room.data(), *backward = backward_room.data(), *clocks = clock_room.data();
    int* next = next_room.data();
    for (int rank = 0; rank < ranks; ++rank) next[rank] = first[rank];

    int done = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < ranks; ++rank) {
            const int stop = first[rank + 1], from = next[rank];
            double clock = clocks[rank];
            int i = from;
            for (; i < stop; ++i) {
                const parts& a = actions[i];
                if (a.forward >= 0 && a.forward % stages != 0) {
                    const double input = forward[a.forward - 1];
                    if (input == 0) break;
                    if (input - 1 > clock) clock = input - 1;
                }
                if (a.input) {
                    const double input = (a.back + 1) % stages != 0 ? backward[a.back + 1] : forward[a.back];
                    if (input == 0) break;
                    if (input - 1 > clock) clock = input - 1;
                }
                begin[i] = clock;
                end[i] = clock += a.takes;
                if (a.forward >= 0) forward[a.forward] = clock + 1;
                if (a.input) backward[a.back] = clock + 1;
                clocks[rank] = clock;
            }
            if (i > from) moved = true;
            done += i - from;
            next[rank] = i;
        }
    }
    for (int rank = 0; rank < ranks; ++rank)
        for (int i = next[rank]; i < first[rank + 1]; ++i) end[i] = -1;
    return done == count;
}

}  // namespace fathom::schedule::detail
