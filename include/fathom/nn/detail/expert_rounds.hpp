// Which rows go to which experts in which round: arithmetic that every rank does on the same counts, so that all agree.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fathom/core/bytes.hpp>
#include <fathom/tensor/matrix.hpp>

namespace fathom::nn::detail {

/// The rows that come to a rank's experts lie in one order: by expert, then by the rank that sent them, then by token.
/// A round is the next `reserve` of them. Where ranks split experts, the rows of each (a lane) are cut by themselves.
struct expert_rounds {
    matrix<const integer> counts;  // [lanes * ranks, experts + 1]: rows for each expert; then how many a rank reserves
    integer ranks;                 // that hold the experts, in order
    integer lanes;                 // ranks that split an expert

    [[nodiscard]] constexpr integer held() const { return (counts.width - 1) / ranks; }
    [[nodiscard]] constexpr integer reserve() const {
        integer least = counts(0, counts.width - 1);
        for (integer r = 1; r < counts.rows; ++r) least = std::min(least, counts(r, counts.width - 1));
        return least;
    }
    /// Rows that come to a rank's experts on one lane.
    [[nodiscard]] constexpr integer rows(integer lane, integer holder) const {
        integer sum = 0;
        for (integer r = lane * ranks; r < (lane + 1) * ranks; ++r)
            for (integer e = holder * held(); e < (holder + 1) * held(); ++e) sum += counts(r, e);
        return sum;
    }
    /// The same number on every rank; one or more.
    [[nodiscard]] constexpr integer count() const {
        integer most = 1;
        for (integer lane = 0; lane < lanes; ++lane)
            for (integer holder = 0; holder < ranks; ++holder) most = std::max(most, rows(lane, holder));
        return pieces(most, reserve());
    }
    /// Rows that come on one lane in one round.
    [[nodiscard]] constexpr integer rows(integer lane, integer holder, integer round) const {
        return std::clamp<integer>(rows(lane, holder) - round * reserve(), 0, reserve());
    }
    /// take(held expert, sender, count) for the rows at the places [first, end) of the order, expert after expert.
    template <class Take>
    constexpr void each(integer lane, integer holder, integer first, integer end, Take&& take) const {
        integer at = 0;
        for (integer e = 0; e < held(); ++e)
            for (integer sender = 0; sender < ranks; ++sender) {
                const integer count = counts(lane * ranks + sender, holder * held() + e);
                const integer here = std::min(end, at + count) - std::max(first, at);
                if (here > 0) take(e, sender, here);
                at += count;
            }
    }
};

/// One round as one rank sees it, in memory that is given. What it sends lies by expert; what it receives, by sender;
/// after that of lane 0 that of lane 1, each in `lane_rows` rows.
struct expert_round {
    matrix<integer> sends;     // [2, ranks]: how many rows to each rank, and where they begin
    matrix<integer> receives;  // [2, ranks]
    integer* groups;           // [held + 1]: the grouped rows of each expert
    std::int32_t* places;      // [lanes * reserve]: where a grouped row lies among those received; then unused places
    integer* cursors;          // [lanes * ranks]
    integer lane_rows = 0;

    /// offsets[experts + 1]: where this rank's rows for each expert begin.
    constexpr void lay(const expert_rounds& all, integer round, integer lane, integer rank, const integer* offsets) {
        const integer first = round * all.reserve(), end = first + all.reserve(), held = all.held();
        for (integer holder = 0; holder < all.ranks; ++holder) {
            const auto mine = [&](integer from, integer to) {
                integer sum = 0;
                all.each(lane, holder, from, to, [&](integer, integer sender, integer count) {
                    if (sender == rank) sum += count;
                });
                return sum;
            };
            sends(0, holder) = mine(first, end);
            sends(1, holder) = offsets[holder * held] + mine(0, first);
        }
        lane_rows = 0;
        for (integer l = 0; l < all.lanes; ++l) lane_rows = std::max(lane_rows, all.rows(l, rank, round));
        std::fill_n(groups, held + 1, 0);
        for (integer l = 0; l < all.lanes; ++l) {
            integer* at = cursors + l * all.ranks;
            std::fill_n(at, all.ranks, 0);
            all.each(l, rank, first, end, [&](integer expert, integer sender, integer count) {
                at[sender] += count;
                groups[expert + 1] += count;
            });
            integer next = l * lane_rows;
            for (integer sender = 0; sender < all.ranks; ++sender) {
                const integer count = at[sender];
                if (l == lane) receives(0, sender) = count, receives(1, sender) = next - l * lane_rows;
                at[sender] = next;
                next += count;
            }
        }
        for (integer e = 0; e < held; ++e) groups[e + 1] += groups[e];
        integer unused = groups[held];
        for (integer l = 0; l < all.lanes; ++l) {
            all.each(l, rank, first, end, [&](integer expert, integer sender, integer count) {
                integer& place = cursors[l * all.ranks + sender];
                for (integer i = 0; i < count; ++i) places[groups[expert]++] = static_cast<std::int32_t>(place++);
            });
            for (integer i = all.rows(l, rank, round); i < lane_rows; ++i)
                places[unused++] = static_cast<std::int32_t>(l * lane_rows + i);
        }
        for (integer e = held; e > 0; --e) groups[e] = groups[e - 1];  // each had moved on to the end of its group
        groups[0] = 0;
    }
};

}  // namespace fathom::nn::detail
