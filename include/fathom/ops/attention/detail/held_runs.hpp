// Which rows are which places, as numbers that a launch takes along.
#pragma once

#include <fathom/core/error.hpp>
#include <fathom/device/block/qualifier.hpp>
#include <fathom/ops/attention/place_run.hpp>
#include <span>

namespace fathom::ops::detail::attention {

/// Runs of places of every sequence.
struct held_runs {
    static constexpr integer most = 64;
    place_run runs[most];
    integer count = 0;
    integer places = 0;  // of one sequence in all runs

    constexpr held_runs() = default;
    /// Errors: more than `most` runs.
    explicit held_runs(std::span<const place_run> of) : count(static_cast<integer>(of.size())), places(places_in(of)) {
        if (count > most)
            fail("attention: found sequences in ", count, " runs, expected at most the ", most, " that kernels take");
        for (integer i = 0; i < count; ++i) runs[i] = of[static_cast<std::size_t>(i)];
    }

    struct found {
        integer place, row;
    };
    /// The i-th place of a sequence.
    [[nodiscard]] FATHOM_DEVICE found at(integer sequence, integer i) const {
        integer run = 0;
        for (; i >= runs[run].count; ++run) i -= runs[run].count;
        return {runs[run].place + i, runs[run].row_of(sequence) + i};
    }
    /// Calls visit(row) for the places of a sequence from `first` on, up to `last`, in the order of runs.
    template <class Visit>
    FATHOM_DEVICE void each(integer sequence, integer first, integer last, const Visit& visit) const {
        for (integer r = 0; r < count; ++r) {
            const integer begin = first > runs[r].place ? first : runs[r].place;
            const integer end = last < runs[r].end() ? last + 1 : runs[r].end();
            for (integer place = begin; place < end; ++place) visit(runs[r].row_of(sequence) + place - runs[r].place);
        }
    }
};

}  // namespace fathom::ops::detail::attention
