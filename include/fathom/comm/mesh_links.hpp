// The groups of ranks that a layout talks in, all made at the start in one order.
#pragma once

#include <fathom/comm/link.hpp>
#include <fathom/parallel/degrees.hpp>

namespace fathom::comm {

/// One rank's links along the axes of a mesh. An axis of one rank has a link of one rank, which costs nothing.
struct mesh_links {
    degrees of;
    rank_place at;
    link world;
    link tensor;         // the ranks that split this rank's layers
    link context;        // that split its sequences
    link replica;        // that hold the same and see other batches
    link data;           // replica x context: that hold the same and see other tokens
    link stage;          // of this rank's pipeline stage
    link pipeline;       // that split the layers of its model, by stage
    link expert_tensor;  // that split its experts' products
    link expert;         // that hold the other experts
    link expert_copies;  // that hold the same experts
    link ends;           // the first and the last stage; of others it is not to be used

    mesh_links() = default;
    /// What this rank has handed to operations of a kind, over all links, as their recorders count bytes.
    [[nodiscard]] integer bytes(operation kind) const {
        integer sum = 0;
        for (const link* l : {&world, &tensor, &context, &replica, &data, &stage, &pipeline, &expert_tensor, &expert,
                              &expert_copies, &ends})
            if (l->recorder() != nullptr) sum += l->recorder()->bytes(kind);
        return sum;
    }
    /// All ranks of `all` make theirs together. Errors: a mesh of another number of ranks.
    mesh_links(const link& all, const degrees& d) : of(d), at(place_of(d, all.rank())), world(all) {
        if (d.ranks() != all.size())
            fail("mesh: found ", all.size(), " ranks, expected the ", d.ranks(), " of dp ", d.dp, " x pp ", d.pp,
                 " x tp ", d.tp, " x cp ", d.cp);
        if (d.stage_ranks() % (d.ep * d.etp) != 0)
            fail("mesh: found ep ", d.ep, " x etp ", d.etp, " over the ", d.stage_ranks(),
                 " ranks of a stage (dp x tp x cp), expected a number that divides them");
        const auto group = [&](integer size, integer colour, integer key, const char* name) {
            return size == 1 ? link{} : size == all.size() ? all.split(0, key, name) : all.split(colour, key, name);
        };
        const auto without = [&](integer a, integer sizes_a, integer b, integer c) {
            return (c * 4096 + b) * sizes_a + a;
        };
        tensor = group(d.tp, without(at.cp, d.cp, at.dp, at.pp), at.tp, "tensor");
        context = group(d.cp, without(at.tp, d.tp, at.dp, at.pp), at.cp, "context");
        replica = group(d.dp, without(at.tp, d.tp, at.cp, at.pp), at.dp, "replica");
        data = group(d.dp * d.cp, without(at.tp, d.tp, 0, at.pp), at.dp * d.cp + at.cp, "data");
        stage = group(d.stage_ranks(), at.pp, at.within, "stage");
        pipeline = group(d.pp, at.within, at.pp, "pipeline");
        const integer experts = d.ep * d.etp;
        expert_tensor = group(d.etp, at.pp * d.stage_ranks() + at.within / d.etp, at.etp, "expert tensor");
        expert = group(d.ep, (at.pp * d.stage_ranks() + at.expert_copy) * d.etp + at.etp, at.ep, "expert");
        expert_copies =
            group(d.expert_copies(), at.pp * experts + at.ep * d.etp + at.etp, at.expert_copy, "expert copies");
        if (d.pp > 1) {
            const bool end = at.pp == 0 || at.pp == d.pp - 1;
            ends = all.split(end ? at.within : d.stage_ranks() + at.within, at.pp, "ends");
        }
    }
};

}  // namespace fathom::comm
