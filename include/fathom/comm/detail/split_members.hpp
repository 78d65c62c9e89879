// Who is in a part of a communicator, found the same way on every kind.
#pragma once

#include <algorithm>
#include <fathom/comm/all_gather.hpp>
#include <vector>

namespace fathom::comm::detail {

/// The ranks of `ranks` that chose this colour, by key, then by rank. A collective.
template <class Ranks> [[nodiscard]] std::vector<integer> split_members(Ranks& ranks, integer colour, integer key) {
    const integer mine[2] = {colour, key};
    std::vector<integer> all(static_cast<std::size_t>(ranks.size()) * 2);
    ranks.run(all_gather(mine, all.data(), 2).from("split"));
    std::vector<integer> members;
    for (integer rank = 0; rank < ranks.size(); ++rank)
        if (all[static_cast<std::size_t>(rank) * 2] == colour) members.push_back(rank);
    std::stable_sort(members.begin(), members.end(), [&](integer a, integer b) {
        return all[static_cast<std::size_t>(a) * 2 + 1] < all[static_cast<std::size_t>(b) * 2 + 1];
    });
    return members;
}

}  // namespace fathom::comm::detail
