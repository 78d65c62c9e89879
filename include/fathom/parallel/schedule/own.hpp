// A table of one's own as a schedule that training<> takes, proven when it is named.
#pragma once

#include <fathom/parallel/schedule/at.hpp>

namespace fathom {

namespace rule {

template <class Schedule, integer Ranks, integer MicroBatches> struct own_table_has_these_sizes {
    static_assert(Schedule::fits(Ranks, MicroBatches),
                  "fathom: a table of your own is for other sizes. fix: give its shape the ranks of pp<N> and the "
                  "micro-batches of a step.");
};

}  // namespace rule

namespace schedule {

/// A type with a table of its own: see `at`.
template <class Table>
concept own_table = requires {
    Table::shape.micro_batches;
    Table::steps;
};

/// Such a table with what the named schedules have. Steps may stand in any order; each rank does its own as they come.
template <own_table Table> struct own {
    static_assert(proven<Table>);
    static constexpr const char* name = "a schedule of your own";
    static constexpr int chunks = Table::shape.chunks;
    static constexpr route way = Table::shape.way;
    static constexpr integer ranks = Table::shape.ranks, micro_batches = Table::shape.micro_batches;
    static constexpr bool fits(integer r, integer m) { return r == ranks && m == micro_batches; }
    static constexpr const char* needs = "the ranks and micro-batches of its shape";
    template <integer Ranks, integer MicroBatches>
    using sizes = rule::own_table_has_these_sizes<own, Ranks, MicroBatches>;
    static constexpr void write(writer& to) {
        for (const step& s : Table::steps)
            if (s.rank == to.rank) to.put(s);
    }
};

}  // namespace schedule

}  // namespace fathom
