// When each action of a schedule begins and ends, if sending takes no time: the picture that papers draw.
#pragma once

#include <fathom/parallel/schedule/detail/parts.hpp>
#include <fathom/parallel/schedule/table.hpp>

namespace fathom::schedule {

/// Fills begin[actions] and end[actions] with times: an action begins when the one before it on its rank has ended and
/// what it reads exists on any rank. Exchanges take no time. Returns whether all actions could be done; those that
/// could not have an end of -1. The table names nothing that is not there (`prove` finds that).
constexpr bool timeline(const table& t, const costs& c, double* begin, double* end) {
    const auto count = static_cast<int>(t.actions.size());
    detail::scratch<detail::parts> parts(count);
    const detail::dictionary words(t.shape, c);
    for (int i = 0; i < count; ++i) parts.data()[i] = words.of(t.actions.data()[i]);
    return detail::run(t.shape, t.begin.data(), parts.data(), begin, end);
}

}  // namespace fathom::schedule
