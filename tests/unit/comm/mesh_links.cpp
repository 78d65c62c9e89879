// The links of a mesh join the ranks that differ in their axis alone, and refuse a mesh of another number of ranks.
#include <doctest/doctest.h>

#include <fathom/comm.hpp>
#include <string>

#include "../scratch_folder.hpp"

namespace fathom {
namespace {

/// The sum of all ranks' numbers of a link: which ranks it joins, if each has a bit of its own.
integer ranks_of(const comm::link& over, integer me) {
    integer bits = integer{1} << me;
    over.run(comm::all_reduce(&bits, 1).from("test"));
    return bits;
}

}  // namespace

TEST_CASE("mesh links: each joins the ranks that differ in its axis alone") {
    for (const degrees& d :
         {degrees{.dp = 2, .pp = 2, .tp = 2, .cp = 2, .ep = 4, .etp = 2}, degrees{.dp = 3, .tp = 2, .ep = 3},
          degrees{.dp = 2,
          .pp = 3,
          .cp = 2,
          .ep = 2,
          .order = {mesh_axis::pp, mesh_axis::dp, mesh_axis::cp, mesh_axis::tp}}})
        comm::threads::run(d.ranks(), [&](auto& mine) {
            const comm::mesh_links links{comm::link{mine}, d};
            const rank_place at = place_of(d, mine.rank());
            const auto expected = [&](auto&& is_in) {
                integer bits = 0;
                for (integer rank = 0; rank < d.ranks(); ++rank)
                    if (is_in(place_of(d, rank))) bits |= integer{1} << rank;
                return bits;
            };
            const auto joins = [&](const comm::link& over, auto&& is_in) {
                return ranks_of(over, mine.rank()) == expected(is_in);
            };
            using p = const rank_place&;
            CHECK(joins(links.tensor, [&](p r) { return r.pp == at.pp && r.dp == at.dp && r.cp == at.cp; }));
            CHECK(joins(links.context, [&](p r) { return r.pp == at.pp && r.dp == at.dp && r.tp == at.tp; }));
            CHECK(joins(links.replica, [&](p r) { return r.pp == at.pp && r.cp == at.cp && r.tp == at.tp; }));
            CHECK(joins(links.data, [&](p r) { return r.pp == at.pp && r.tp == at.tp; }));
            CHECK(joins(links.stage, [&](p r) { return r.pp == at.pp; }));
            CHECK(joins(links.pipeline, [&](p r) { return r.within == at.within; }));
            const auto same_stage = [&](p r) { return r.pp == at.pp; };
            CHECK(joins(links.expert,
                        [&](p r) { return same_stage(r) && r.etp == at.etp && r.expert_copy == at.expert_copy; }));
            CHECK(joins(links.expert_tensor,
                        [&](p r) { return same_stage(r) && r.ep == at.ep && r.expert_copy == at.expert_copy; }));
            CHECK(joins(links.expert_copies, [&](p r) { return same_stage(r) && r.ep == at.ep && r.etp == at.etp; }));
            CHECK(links.tensor.rank() == at.tp);
            CHECK(links.pipeline.rank() == at.pp);
            CHECK(links.expert.rank() == at.ep);
            if (d.pp > 1 && (at.pp == 0 || at.pp == d.pp - 1))
                CHECK(joins(links.ends, [&](p r) { return r.within == at.within && (r.pp == 0 || r.pp == d.pp - 1); }));
            CHECK(links.bytes(comm::operation::all_reduce) > 0);
        });
}

TEST_CASE("mesh links: a mesh that the ranks do not make up is refused") {
    const auto refusal = [](const degrees& d) {
        return test::message_of([&] {
            comm::threads::run(4, [&](auto& mine) { const comm::mesh_links links{comm::link{mine}, d}; });
        });
    };
    CHECK(refusal({.dp = 3, .tp = 2}).find("found 4 ranks, expected the 6 of dp 3 x pp 1 x tp 2") != std::string::npos);
    CHECK(refusal({.dp = 4, .ep = 3}).find("found ep 3 x etp 1 over the 4 ranks of a stage") != std::string::npos);
}

}  // namespace fathom
