// A mesh as numbers, and where a rank stands in it: what is compiled once for all layouts reads this.
#pragma once

#include <array>
#include <fathom/parallel/mesh.hpp>

namespace fathom {

/// How many ranks each kind of parallelism takes. Experts see the ranks of a stage (dp x cp x tp of them) a second
/// time, as copies x ep x etp.
struct degrees {
    integer dp = 1, pp = 1, tp = 1, cp = 1;
    integer ep = 1, etp = 1;
    std::array<mesh_axis, 4> order{mesh_axis::tp, mesh_axis::cp, mesh_axis::dp, mesh_axis::pp};  // innermost first

    [[nodiscard]] constexpr integer of(mesh_axis a) const {
        return a == mesh_axis::dp   ? dp
               : a == mesh_axis::tp ? tp
               : a == mesh_axis::pp ? pp
               : a == mesh_axis::cp ? cp
               : a == mesh_axis::ep ? ep
                                    : etp;
    }
    [[nodiscard]] constexpr integer ranks() const { return dp * pp * tp * cp; }
    /// Ranks that hold one pipeline stage.
    [[nodiscard]] constexpr integer stage_ranks() const { return dp * tp * cp; }
    /// Ranks that hold the same experts.
    [[nodiscard]] constexpr integer expert_copies() const { return stage_ranks() / (ep * etp); }
    /// Whether ranks share a sequence, a layer or a model: everything but whole copies of it.
    [[nodiscard]] constexpr bool split() const { return pp * tp * cp * ep * etp > 1; }
    constexpr bool operator==(const degrees&) const = default;
};

/// The degrees of a mesh whose dp is `dp`, if the mesh leaves it open.
template <class Mesh> constexpr degrees degrees_of(integer dp = 1) {
    return {.dp = Mesh::dp_degree == any ? dp : Mesh::dp_degree,
            .pp = Mesh::pp_degree,
            .tp = Mesh::tp_degree,
            .cp = Mesh::cp_degree,
            .ep = Mesh::ep_degree,
            .etp = Mesh::etp_degree,
            .order = Mesh::order};
}

/// The coordinates of a rank. `within` numbers the ranks of its stage in the mesh's order; experts' coordinates are
/// counted on it, expert-tensor ranks innermost.
struct rank_place {
    integer dp = 0, pp = 0, tp = 0, cp = 0;
    integer within = 0;
    integer etp = 0, ep = 0, expert_copy = 0;
    constexpr bool operator==(const rank_place&) const = default;
};

constexpr rank_place place_of(const degrees& d, integer rank) {
    rank_place p;
    integer stride = 1;
    for (const mesh_axis a : d.order) {
        const integer at = rank % d.of(a);
        rank /= d.of(a);
        if (a == mesh_axis::pp) {
            p.pp = at;
            continue;
        }
        (a == mesh_axis::dp ? p.dp : a == mesh_axis::tp ? p.tp : p.cp) = at;
        p.within += stride * at;
        stride *= d.of(a);
    }
    p.etp = p.within % d.etp;
    p.ep = p.within / d.etp % d.ep;
    p.expert_copy = p.within / (d.etp * d.ep);
    return p;
}

/// The part of n things that one of several ranks takes: pieces of one size, the last ones shorter or empty, so that
/// parts of ranks padded to `each` and laid one after another begin with the n things in order.
struct share_of {
    integer each = 0, first = 0, count = 0;
    constexpr share_of(integer n, integer ranks, integer rank)
        : each((n + ranks - 1) / ranks),
          first(rank * each < n ? rank * each : n),
          count(first + each < n ? each : n - first) {}
};

}  // namespace fathom
