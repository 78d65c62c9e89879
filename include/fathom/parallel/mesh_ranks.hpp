// How many ranks a mesh is for, in numbers and in words: who starts ranks, and who picks a recipe by them, reads this.
#pragma once

#include <fathom/core/error.hpp>
#include <fathom/parallel/degrees.hpp>
#include <string>

namespace fathom {

/// One number of ranks, or with dp<any> all multiples of one.
struct mesh_ranks {
    degrees mesh{};  // with dp 1 where it is left open
    bool any_dp = false;

    /// The number, or what it must be a multiple of.
    [[nodiscard]] constexpr integer each() const { return mesh.ranks(); }
    [[nodiscard]] constexpr bool fit(integer ranks) const {
        return any_dp ? ranks > 0 && ranks % each() == 0 : ranks == each();
    }
    /// Whether every number that fits `other` fits this.
    [[nodiscard]] constexpr bool cover(const mesh_ranks& other) const {
        return any_dp ? other.each() % each() == 0 : !other.any_dp && other.each() == each();
    }
    /// `the 8 of a mesh with dp 2 x pp 2 x tp 2 x cp 1`, `a multiple of the 4 of a mesh with dp any x ...`.
    [[nodiscard]] std::string text() const {
        return text_of(any_dp ? "a multiple of the " : "the ", each(), " of a mesh with dp ",
                       any_dp ? std::string{"any"} : text_of(mesh.dp), " x pp ", mesh.pp, " x tp ", mesh.tp, " x cp ",
                       mesh.cp);
    }
};

template <class Mesh> constexpr mesh_ranks mesh_ranks_of() { return {degrees_of<Mesh>(1), Mesh::dp_degree == any}; }

}  // namespace fathom
