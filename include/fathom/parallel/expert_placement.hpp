// Which GPU holds which copy of which expert, so that busy experts do not hold up a step (DeepSeek's EPLB).
#pragma once

#include <fathom/core/bytes.hpp>
#include <fathom/core/error.hpp>
#include <span>
#include <vector>

namespace fathom {

/// What experts are placed on. `replicas` is the number of places for copies, the same number on each GPU.
struct expert_places {
    integer replicas = 0;
    integer groups = 1;  // experts of a group stay on one node, where groups divide evenly over nodes
    integer nodes = 1;
    integer gpus = 1;  // of all nodes
};

/// The placement of one layer's experts.
struct expert_placement {
    std::vector<integer> expert_of;  // expert_of[replicas], GPU by GPU
    std::vector<integer> copy_of;    // copy_of[replicas]: which copy of its expert, from 0
    std::vector<integer> copies;     // copies[experts]
    std::vector<double> gpu_load;    // gpu_load[gpus], each copy taking an equal part of its expert's load
    bool hierarchical = false;       // groups were kept together on nodes

    /// The most loaded GPU against the mean: how much longer than balanced the experts take. 1 without any load.
    [[nodiscard]] constexpr double imbalance() const {
        double most = 0, sum = 0;
        for (const double load : gpu_load) {
            if (load > most) most = load;
            sum += load;
        }
        return sum > 0 ? most * static_cast<double>(gpu_load.size()) / sum : 1;
    }
};

namespace detail {

/// Puts things into packs of equal size: the heaviest first, each into the lightest pack that has room; among equals
/// the lower index. Gives each thing's place, pack by pack.
constexpr std::vector<integer> pack(std::span<const double> weights, integer packs) {
    const auto count = static_cast<integer>(weights.size()), size = count / packs;
    std::vector<integer> order(weights.size()), place(weights.size());
    for (integer i = 0; i < count; ++i) place[static_cast<std::size_t>(i)] = order[static_cast<std::size_t>(i)] = i;
    if (size == 1) return place;
    for (std::size_t i = 1; i < order.size(); ++i)  // insertion: stable, and there are few hundred
        for (std::size_t k = i; k > 0; --k) {
            const auto before = static_cast<std::size_t>(order[k - 1]), here = static_cast<std::size_t>(order[k]);
            if (weights[before] >= weights[here]) break;
            order[k - 1] = static_cast<integer>(here);
            order[k] = static_cast<integer>(before);
        }
    std::vector<double> load(static_cast<std::size_t>(packs));
    std::vector<integer> held(static_cast<std::size_t>(packs));
    for (const integer thing : order) {
        std::size_t lightest = load.size();
        for (std::size_t p = 0; p < load.size(); ++p)
            if (held[p] < size && (lightest == load.size() || load[p] < load[lightest])) lightest = p;
        place[static_cast<std::size_t>(thing)] = static_cast<integer>(lightest) * size + held[lightest]++;
        load[lightest] += weights[static_cast<std::size_t>(thing)];
    }
    return place;
}

}  // namespace detail

/// Places copies of experts by their loads (tokens, in any unit). Where groups divide evenly over nodes, groups are
/// packed to nodes and extra copies made within a node; else all GPUs are one node. Extra copies go one by one to the
/// expert whose copies are busiest, then copies are packed to GPUs. Ties go to the lower index. Throws `error` when the
/// numbers do not divide, there are fewer places than experts, or a load is not a number of at least 0.
constexpr expert_placement place_experts(std::span<const double> loads, expert_places places) {
    const auto experts = static_cast<integer>(loads.size());
    const auto divides = [](integer whole, integer parts) { return parts > 0 && whole > 0 && whole % parts == 0; };
    if (!divides(experts, places.groups))
        fail("expert placement: found ", experts, " experts in ", places.groups,
             " groups, expected groups of one size");
    if (!divides(places.gpus, places.nodes))
        fail("expert placement: found ", places.gpus, " GPUs on ", places.nodes, " nodes, expected as many on each");
    if (!divides(places.replicas, places.gpus) || places.replicas < experts)
        fail("expert placement: found ", places.replicas, " places for ", experts, " experts on ", places.gpus,
             " GPUs, expected at least one an expert and as many on each GPU");
    for (integer e = 0; e < experts; ++e)
        if (const double load = loads[static_cast<std::size_t>(e)]; !(load >= 0 && load <= 1e300))
            fail("expert placement: found the load ", load, " of expert ", e, ", expected a number of at least 0");

    expert_placement result;
    result.hierarchical = places.groups % places.nodes == 0;
    const integer groups = result.hierarchical ? places.groups : 1, nodes = result.hierarchical ? places.nodes : 1;
    const integer group_size = experts / groups, here = experts / nodes;       // experts of a group, of a node
    const integer room = places.replicas / nodes, gpus = places.gpus / nodes;  // of a node
    const auto at = [](auto& list, integer i) -> auto& { return list[static_cast<std::size_t>(i)]; };

    // Groups to nodes: by_node[nodes * here] names the experts node by node.
    std::vector<double> group_load(static_cast<std::size_t>(groups));
    for (integer e = 0; e < experts; ++e) at(group_load, e / group_size) += at(loads, e);
    const std::vector<integer> group_place = detail::pack(group_load, nodes);
    std::vector<integer> by_node(loads.size());
    for (integer e = 0; e < experts; ++e)
        at(by_node, at(group_place, e / group_size) * group_size + e % group_size) = e;

    result.expert_of.resize(static_cast<std::size_t>(places.replicas));
    result.copy_of.resize(static_cast<std::size_t>(places.replicas));
    result.copies.resize(loads.size(), 1);
    result.gpu_load.resize(static_cast<std::size_t>(places.gpus));
    for (integer node = 0; node < nodes; ++node) {
        // One copy of each expert of the node, then an extra one for whoever's copies are busiest.
        std::vector<integer> made(static_cast<std::size_t>(room)), copy(static_cast<std::size_t>(room));
        for (integer i = 0; i < room; ++i) {
            integer busiest = i < here ? at(by_node, node * here + i) : at(by_node, node * here);
            for (integer k = 0; i >= here && k < here; ++k) {
                const integer e = at(by_node, node * here + k);
                if (at(loads, e) / static_cast<double>(at(result.copies, e)) >
                    at(loads, busiest) / static_cast<double>(at(result.copies, busiest)))
                    busiest = e;
            }
            at(made, i) = busiest;
            at(copy, i) = i < here ? 0 : at(result.copies, busiest)++;
        }
        std::vector<double> copy_load(static_cast<std::size_t>(room));
        for (integer i = 0; i < room; ++i)
            at(copy_load, i) = at(loads, at(made, i)) / static_cast<double>(at(result.copies, at(made, i)));
        const std::vector<integer> place = detail::pack(copy_load, gpus);
        for (integer i = 0; i < room; ++i) {
            const integer to = node * room + at(place, i);
            at(result.expert_of, to) = at(made, i);
            at(result.copy_of, to) = at(copy, i);
            at(result.gpu_load, to / (room / gpus)) += at(copy_load, i);
        }
    }
    return result;
}

}  // namespace fathom
