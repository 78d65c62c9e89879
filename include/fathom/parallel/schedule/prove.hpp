// Proves a schedule at compile time or at start: it cannot hang, every micro-batch is worked on exactly once, in order.
#pragma once

#include <fathom/parallel/schedule/detail/ordering.hpp>
#include <fathom/parallel/schedule/detail/progress.hpp>

namespace fathom::schedule {

namespace detail {

/// The first half of a proof: a constant evaluation of its own, so that large tables stay within compilers' limits.
constexpr proof prove_order(const table& t, const costs& c, int* others) {
    proof p;
    p.found = problem::sizes;
    if (!t.shape.sound() || t.shape.ranks > proof::most_ranks ||
        t.begin.size() != static_cast<unsigned>(t.shape.ranks) + 1)
        return p;
    return ordering(t, c, others).run();
}

}  // namespace detail

/// Whether the table can run: all work is done once and in order, all transfers meet, and no rank waits for ever when
/// sends wait for their receives. Gives what each rank keeps, and times under the costs. Linear in actions.
constexpr proof prove(const table& t, const costs& c = {}) {
    detail::scratch<int> others(static_cast<int>(t.transfers.size()));
    proof p = detail::prove_order(t, c, others.data());
    if (p.holds()) detail::progress(t, c, others.data(), p);
    return p;
}

}  // namespace fathom::schedule
