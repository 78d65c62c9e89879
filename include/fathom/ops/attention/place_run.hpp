// Which rows of a matrix are which places of a sequence: what lets a part of the queries attend to a part of the keys.
#pragma once

#include <fathom/core/bytes.hpp>
#include <span>

namespace fathom::ops {

/// Places [place, place + count) of every sequence: of sequence s, the rows from row + s * step on.
struct place_run {
    integer place = 0;
    integer count = 0;
    integer row = 0;
    integer step = 0;

    [[nodiscard]] constexpr integer row_of(integer sequence) const { return row + sequence * step; }
    [[nodiscard]] constexpr integer end() const { return place + count; }
};

/// Places of one sequence in all runs.
constexpr integer places_in(std::span<const place_run> runs) {
    integer sum = 0;
    for (const place_run& run : runs) sum += run.count;
    return sum;
}

}  // namespace fathom::ops
