// A schedule as constant tables: what each rank does in order, exchanges with its neighbours included.
#pragma once

#include <fathom/parallel/schedule/shape.hpp>
#include <fathom/parallel/schedule/step.hpp>
#include <span>

namespace fathom::schedule {

/// What goes from stage to stage.
enum class cargo : unsigned char { activation, gradient };

/// One tensor that a rank sends or receives.
struct transfer {
    cargo what = cargo::activation;
    int peer = 0;
    int micro_batch = 0;
    int chunk = 0;  // of this rank: the one that made it, or that will read it
};

/// One action of a rank. An exchange names transfers [first, first + sends + receives) of the table, sends first; all
/// are begun together, and the exchange ends when all are done, so that no transfer needs a buffer between ranks.
struct action : step {
    int first = 0;
    int sends = 0;
    int receives = 0;
};

/// A schedule: rank r does actions [begin[r], begin[r + 1]) in order. The table does not own what it names.
struct table {
    schedule::shape shape;
    std::span<const action> actions;
    std::span<const transfer> transfers;
    std::span<const int> begin;  // begin[ranks + 1]

    [[nodiscard]] constexpr std::span<const action> of(int rank) const {
        return actions.subspan(
            static_cast<unsigned>(begin[static_cast<unsigned>(rank)]),
            static_cast<unsigned>(begin[static_cast<unsigned>(rank) + 1] - begin[static_cast<unsigned>(rank)]));
    }
    [[nodiscard]] constexpr std::span<const transfer> sends(const action& a) const {
        return transfers.subspan(static_cast<unsigned>(a.first), static_cast<unsigned>(a.sends));
    }
    [[nodiscard]] constexpr std::span<const transfer> receives(const action& a) const {
        return transfers.subspan(static_cast<unsigned>(a.first + a.sends), static_cast<unsigned>(a.receives));
    }
};

}  // namespace fathom::schedule
