// Runs all ranks of a table together to see whether any waits for ever, and how long everything takes.
#pragma once

#include <fathom/parallel/schedule/detail/parts.hpp>
#include <fathom/parallel/schedule/proof.hpp>
#include <fathom/parallel/schedule/table.hpp>

namespace fathom::schedule::detail {

/// Ends when all ranks are done or all wait; others[k] is the action that has the other side of transfer k. Two clocks
/// run: one waits for both sides of each exchange, the other only for what a computation reads. Adds deadlock and times
/// to p.
constexpr void progress(const table& t, const costs& c, const int* others, proof& p) {
    const dictionary words(t.shape, c);
    const action* actions = t.actions.data();
    const transfer* transfers = t.transfers.data();
    const int* begin = t.begin.data();
    const auto action_count = static_cast<int>(t.actions.size());
    const int ranks = t.shape.ranks, stages = words.stages;
    scratch<double> rank_room(3 * ranks), posted_room(action_count), exists_room(2 * words.keys);
    scratch<int> next_room(ranks);
    double *waiting = rank_room.data(), *working = waiting + ranks, *begun = working + ranks;
    double* posted = posted_room.data();  // when a rank came to an exchange, plus 1; 0: not yet
    double *forward = exists_room.data(),
           *backward = forward + words.keys;  // when outputs and input gradients exist
    int* next = next_room.data();
    for (int rank = 0; rank < ranks; ++rank) {
        next[rank] = begin[rank];
        begun[rank] = -1;
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < ranks; ++rank) {
            const int from = next[rank], stop = begin[rank + 1];
            double wait = waiting[rank], clock = working[rank], busy = 0;
            int i = from;
            for (; i < stop; ++i) {
                const action& a = actions[i];
                if (a.what == work::exchange) {
                    if (posted[i] == 0) {
                        posted[i] = wait + 1;
                        moved = true;
                    }
                    double ready = posted[i], other = 1;
                    int k = a.first;
                    for (const int last = k + a.sends + a.receives; k < last; ++k) {
                        if ((other = posted[others[k]]) == 0) break;
                        if (other > ready) ready = other;
                    }
                    if (other == 0) break;
                    wait = ready - 1;
                    continue;
                }
                const parts x = words.of(a);
                if (x.forward >= 0 && x.forward % stages != 0 && forward[x.forward - 1] > clock)
                    clock = forward[x.forward - 1];
                if (x.input && (x.back + 1) % stages != 0 && backward[x.back + 1] > clock) clock = backward[x.back + 1];
                if (begun[rank] < 0) begun[rank] = clock;
                clock += x.takes;
                wait += x.takes;
                busy += x.takes;
                if (x.forward >= 0) forward[x.forward] = clock;
                if (x.input) backward[x.back] = clock;
            }
            waiting[rank] = wait;
            working[rank] = clock;
            p.ranks.data()[rank].busy += busy;
            if (i > from) moved = true;
            next[rank] = i;
        }
    }
    for (int rank = 0; rank < ranks; ++rank) {
        if (next[rank] < begin[rank + 1]) {
            int k = actions[next[rank]].first;
            while (posted[others[k]] != 0) ++k;
            p.found = problem::deadlock, p.rank = rank, p.action = next[rank] - begin[rank];
            p.chunk = transfers[k].chunk, p.micro_batch = transfers[k].micro_batch;
            return;
        }
        if (working[rank] > p.time) p.time = working[rank];
        if (waiting[rank] > p.time_in_step) p.time_in_step = waiting[rank];
    }
    for (int rank = 0; rank < ranks; ++rank) {
        rank_figures& f = p.ranks.data()[rank];
        f.idle = p.time - f.busy;
        f.idle_inside = working[rank] - begun[rank] - f.busy;
    }
}

}  // namespace fathom::schedule::detail
