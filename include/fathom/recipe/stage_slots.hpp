// How much of a schedule's work is alive at once on a rank: what its memory is planned by, and what its run is held to.
#pragma once

#include <array>
#include <fathom/core/bytes.hpp>
#include <fathom/parallel/schedule/table.hpp>

namespace fathom::planning {

/// Room for the micro-batches that are under way on one rank.
struct stage_slots {
    static constexpr integer most_chunks = 9;
    std::array<integer, most_chunks> kept{1};      // by chunk: from forward until its last gradient
    std::array<integer, most_chunks> deferred{1};  // by chunk: between the gradients of input and weights
    integer gradients = 1;                         // of what stages give, on their way
    bool apart = false;                            // weights' gradients are a step of their own

    constexpr bool operator==(const stage_slots&) const = default;
    /// Whether work that needs `other` fits into this.
    [[nodiscard]] constexpr bool holds(const stage_slots& other) const {
        for (std::size_t c = 0; c < most_chunks; ++c)
            if (kept[c] < other.kept[c] || deferred[c] < other.deferred[c]) return false;
        return gradients >= other.gradients && apart == other.apart;
    }
};

/// The stage before a chunk's, or after it, is on the same rank: what lies between them is handed on in place.
constexpr bool before_is_here(const schedule::shape& s, int rank, int chunk) {
    const int stage = s.stage_of(rank, chunk);
    return s.way != schedule::route::two_way && stage > 0 && s.rank_of(stage - 1, 0) == rank;
}
constexpr bool after_is_here(const schedule::shape& s, int rank, int chunk) {
    const int stage = s.stage_of(rank, chunk);
    return s.way != schedule::route::two_way && stage + 1 < s.stages() && s.rank_of(stage + 1, 0) == rank;
}

/// What a rank needs for its actions of a table. A micro-batch takes room in a chunk when its input is received, or by
/// its forward where that comes from the rank itself; it leaves with the last of its gradients. The gradient of a
/// chunk's output takes room when it is received, or by its backward where the chunk ends the model, and leaves when it
/// has been sent, or with its backward where the chunk begins the model.
constexpr stage_slots slots_of(const schedule::table& t, int rank) {
    stage_slots most;
    most.kept = most.deferred = {};
    most.gradients = 0;
    stage_slots now = most;
    const auto stage = [&](int chunk) { return t.shape.stage_of(rank, chunk); };
    const auto first = [&](int chunk) { return stage(chunk) == 0; };
    const auto from_here = [&](int chunk) { return first(chunk) || before_is_here(t.shape, rank, chunk); };
    const auto last = [&](int chunk) { return stage(chunk) == t.shape.stages() - 1; };
    const auto grow = [](integer& number, integer& largest) {
        if (++number > largest) largest = number;
    };
    for (const schedule::action& a : t.of(rank)) most.apart = most.apart || a.what == schedule::work::backward_weight;
    for (const schedule::action& a : t.of(rank)) {
        const auto c = static_cast<std::size_t>(a.chunk), back = static_cast<std::size_t>(a.chunk_back());
        if (a.what == schedule::work::exchange) {
            for (const schedule::transfer& r : t.receives(a)) {
                const auto to = static_cast<std::size_t>(r.chunk);
                if (r.what == schedule::cargo::activation)
                    grow(now.kept[to], most.kept[to]);
                else
                    grow(now.gradients, most.gradients);
            }
            for (const schedule::transfer& s : t.sends(a)) now.gradients -= s.what == schedule::cargo::gradient ? 1 : 0;
        }
        if (a.has_forward() && from_here(a.chunk)) grow(now.kept[c], most.kept[c]);
        if (a.has_backward()) {
            if (last(a.chunk_back())) grow(now.gradients, most.gradients);
            grow(now.deferred[back], most.deferred[back]);
            now.gradients -= first(a.chunk_back()) ? 1 : 0;
        }
        if (a.has_weight()) {
            --now.deferred[back];
            --now.kept[back];
        }
    }
    return most;
}

}  // namespace fathom::planning
