// Every rank has a place of its own in the mesh, in the order that the mesh says, and experts see the ranks of a stage
// once more.
#include <doctest/doctest.h>

#include <fathom/parallel/degrees.hpp>
#include <map>
#include <tuple>

namespace fathom {
namespace {

using pod = mesh<dp<any>, pp<2>, tp<2>, ep<2>>;
static_assert(degrees_of<pod>(3) == degrees{.dp = 3, .pp = 2, .tp = 2, .ep = 2});
static_assert(degrees_of<pod>(3).ranks() == 12 && degrees_of<pod>(3).stage_ranks() == 6);
static_assert(degrees_of<pod>(3).expert_copies() == 3);
static_assert(degrees_of<mesh<dp<4>>>(9).dp == 4 && !degrees_of<mesh<dp<4>>>().split());
static_assert(degrees_of<pod>().split() && degrees{.cp = 2}.split() && degrees{.dp = 2, .ep = 2}.split());

// Tensor ranks are neighbours, stages far apart; and the other way round where the mesh says so.
static_assert(place_of({.dp = 2, .pp = 2, .tp = 2}, 5) == rank_place{.pp = 1, .tp = 1, .within = 1, .expert_copy = 1});
using turned = mesh<dp<2>, pp<2>, tp<2>, rank_order<mesh_axis::pp, mesh_axis::dp, mesh_axis::cp, mesh_axis::tp>>;
static_assert(place_of(degrees_of<turned>(), 5) == rank_place{.pp = 1, .tp = 1, .within = 2, .expert_copy = 2});

}  // namespace

TEST_CASE("degrees: ranks and places are one to one") {
    for (const degrees& d :
         {degrees{.dp = 3, .pp = 2, .tp = 2, .cp = 2, .ep = 3, .etp = 2}, degrees{.dp = 2, .pp = 2, .tp = 4, .ep = 4},
          degrees{.dp = 2,
          .pp = 3,
          .cp = 2,
          .ep = 2,
          .order = {mesh_axis::pp, mesh_axis::dp, mesh_axis::cp, mesh_axis::tp}}}) {
        std::map<std::tuple<integer, integer, integer, integer>, integer> places;
        std::map<std::tuple<integer, integer, integer, integer>, integer> expert_places;
        for (integer rank = 0; rank < d.ranks(); ++rank) {
            const rank_place p = place_of(d, rank);
            CHECK(p.dp < d.dp);
            CHECK(p.pp < d.pp);
            CHECK(p.tp < d.tp);
            CHECK(p.cp < d.cp);
            CHECK(p.ep < d.ep);
            CHECK(p.etp < d.etp);
            CHECK(p.expert_copy < d.expert_copies());
            ++places[{p.dp, p.pp, p.tp, p.cp}];
            ++expert_places[{p.pp, p.etp, p.ep, p.expert_copy}];
        }
        CHECK(static_cast<integer>(places.size()) == d.ranks());
        CHECK(static_cast<integer>(expert_places.size()) == d.ranks());
    }
}

TEST_CASE("degrees: shares cover everything once, in order, and none is longer than a piece") {
    for (const integer n : {0, 1, 5, 8, 17})
        for (const integer ranks : {1, 2, 3, 8}) {
            integer next = 0;
            for (integer rank = 0; rank < ranks; ++rank) {
                const share_of mine{n, ranks, rank};
                CHECK(mine.first == next);
                CHECK(mine.count <= mine.each);
                next += mine.count;
                // Parts padded to a piece begin with the things in order: only what comes last may be short.
                if (next < n) CHECK(mine.count == mine.each);
            }
            CHECK(next == n);
        }
}

}  // namespace fathom
