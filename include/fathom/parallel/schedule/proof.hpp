// What is known of a schedule before anything runs: that it cannot hang or lose work, what it keeps, and how long it
// idles.
#pragma once

#include <array>
#include <fathom/parallel/schedule/shape.hpp>

namespace fathom::schedule {

/// What can be wrong with a schedule.
enum class problem : unsigned char {
    none,
    sizes,       // a shape that makes no sense, or more ranks than a proof has room for
    foreign,     // an action of a rank, chunk or micro-batch that is not there
    repeated,    // the same forward, input's or weights' gradient a second time
    lost,        // a forward, input's or weights' gradient that nobody does
    early,       // an action or a send before what it needs is on the rank
    wrong_peer,  // a transfer with a rank that does not hold the neighbouring stage
    unmatched,   // a send that nobody receives, or a receive that nobody sends
    crossed,     // a channel's sends and receives in different orders
    deadlock,    // ranks that wait for each other
};

/// Of one rank. Times are in the unit of the costs.
struct rank_figures {
    int activations = 0;     // most micro-batches of its chunks that are alive from forward to the input's gradient
    int deferred = 0;        // most that are alive from the input's to the weights' gradient
    int kept = 0;            // most that are alive from forward to the weights' gradient
    int exchanged = 0;       // most tensors that wait to be sent, are under way or wait to be read
    double busy = 0;         // time in computations
    double idle = 0;         // the rest of the schedule's time
    double idle_inside = 0;  // of which between its first and its last action
};

/// The result of `prove`. With a problem, `rank` and `action` (its index among the rank's actions) say where, `chunk`
/// and `micro_batch` of what; an action of -1 is none in particular. Without one, figures of each rank.
struct proof {
    static constexpr int most_ranks = 64;

    problem found = problem::none;
    int rank = -1;
    int action = -1;
    int chunk = -1;
    int micro_batch = -1;

    double time = 0;          // of the whole, when transfers take no time and nobody waits for them
    double time_in_step = 0;  // when each exchange is waited for on both sides before the next computation
    bool in_order = false;    // each stage adds its weights' gradients in the order of micro-batches
    std::array<rank_figures, most_ranks> ranks{};

    [[nodiscard]] constexpr bool holds() const { return found == problem::none; }
    /// The largest of a figure over ranks: most(&rank_figures::idle).
    template <class Number> [[nodiscard]] constexpr Number most(Number rank_figures::*figure) const {
        Number n = 0;
        for (const rank_figures& r : ranks)
            if (r.*figure > n) n = r.*figure;
        return n;
    }
};

}  // namespace fathom::schedule
