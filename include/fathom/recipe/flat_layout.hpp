// Where every parameter lies in the flat arrays of weights, gradients and optimizer state, and how ranks that hold the
// same share them.
#pragma once

#include <algorithm>
#include <array>
#include <fathom/core/error.hpp>
#include <fathom/nn/parameter.hpp>
#include <fathom/parallel/degrees.hpp>
#include <vector>

namespace fathom::planning {

/// Storages start at multiples of this many numbers, so that they start at a cache line in every format.
inline constexpr integer storage_alignment = 32;

/// The ranks that hold the same numbers: gradients are summed over them, and ZeRO shards over them (Rajbhandari et al.,
/// 2020).
enum class copies : unsigned char { data, stage, experts };
inline constexpr std::array<copies, 3> all_copies{copies::data, copies::stage, copies::experts};

/// How many ranks of each kind there are, and what they shard.
struct sharding {
    integer data = 1, stage = 1, experts = 1;
    integer tensor = 1;
    integer zero =
        0;  // the ZeRO stage: 1 shards the optimizer's state, 2 gradients of blocks too, 3 weights of blocks too
    integer expert_ranks = 1;  // that split experts
    integer within = 0;        // data ranks that shard, where others have copies of their shards; 0: all

    constexpr sharding() = default;
    /// Errors: data ranks that `shard_within` does not divide.
    constexpr sharding(const degrees& d, integer zero_stage, integer shard_within = 0)
        : data(d.dp * d.cp),
          stage(d.stage_ranks()),
          experts(d.expert_copies()),
          tensor(d.tp),
          zero(zero_stage),
          expert_ranks(d.ep * d.etp),
          within(shard_within) {
        if (within > 0 && data % within != 0)
            fail("sharding: found ", data, " data ranks (dp x cp), expected a multiple of shard_within<", within, ">");
    }
    /// All that hold the same.
    [[nodiscard]] constexpr integer group(copies of) const {
        return of == copies::data ? data : of == copies::stage ? stage : experts;
    }
    /// Of which each one's shard is another part; the others have the same shards again. Experts that do not fit into
    /// `within` are not sharded.
    [[nodiscard]] constexpr integer ranks(copies of) const {
        if (within == 0 || of == copies::data) return within == 0 ? group(of) : within;
        const integer near = within * tensor;
        return of == copies::stage ? near : near % expert_ranks == 0 ? near / expert_ranks : 1;
    }
    /// Who holds the same as this rank of a storage. Of one with split and whole parts, those that split ones have.
    [[nodiscard]] constexpr copies of(const nn::storage& facts) const {
        if (facts.of_experts) return copies::experts;
        if (tensor == 1) return copies::data;
        for (const nn::part& p : facts.parts)
            if (p.name != nullptr && p.copies != 0 && p.copies != tensor) return copies::data;
        return copies::stage;
    }
    /// Whether blocks keep shards of gradients or weights, and not all of them.
    [[nodiscard]] constexpr bool shards_gradients(copies of) const { return zero >= 2 && ranks(of) > 1; }
    [[nodiscard]] constexpr bool shards_weights(copies of) const { return zero >= 3 && ranks(of) > 1; }
    /// Numbers of a bucket whose storages have `count`, so that all shards of it are equal.
    [[nodiscard]] constexpr integer padded(copies of, integer count) const {
        return round_up(count, storage_alignment * (zero > 0 ? ranks(of) : 1));
    }
    [[nodiscard]] constexpr integer shard(copies of, integer padded_count) const {
        return zero > 0 ? padded_count / ranks(of) : padded_count;
    }
};

/// Where a bucket's numbers lie in an array that may keep shards only: the whole ones, for good or while its block
/// works, and this rank's shard.
struct placed_numbers {
    integer whole = 0;
    integer shard = -1;  // -1: it is this rank's row of the whole ones, which stay
};
/// Neighbouring storages of one layer that the same ranks hold: what is reduced, gathered and sharded at once.
struct bucket {
    copies over = copies::data;
    integer layer = -1;      // -1: outside all blocks
    integer at = 0;          // as if all whole numbers lay one after another
    integer count = 0;       // with padding
    integer shard = 0;       // where this rank's shard begins in arrays of shards
    bool embedding = false;  // which the last stage may hold, too
    bool of_block = false;   // of the main model
    std::size_t room = 0;    // that its block has when it works, of those in which blocks take turns
    placed_numbers weights{}, gradients{};
};
/// A storage in its bucket.
struct placed_storage {
    nn::storage facts;
    integer at = 0;                      // as if all whole numbers lay one after another
    integer bucket = 0;                  // its index
    integer weights = 0, gradients = 0;  // where its whole numbers lie
};
/// Sizes of an array in which blocks may have shards only: what stays, and rooms in which blocks take turns to be
/// whole.
struct flat_array {
    integer stays = 0;
    integer room = 0;  // each one's size
    [[nodiscard]] constexpr integer count(integer rooms) const { return stays + rooms * room; }
};
/// Sizes of a rank's flat arrays.
struct flat_sizes {
    /// One block works while the next one's weights, or the last one's gradients, are on their way. A rank with no more
    /// blocks than that has nothing to gain: they stay whole.
    static constexpr integer most_rooms = 2;
    integer whole = 0, shards = 0, parts = 0, largest_storage = 0;
    integer rooms = 0;  // 0: no blocks take turns
    flat_array weights, gradients;
};

/// The sizes of a model's arrays: group by group, without a list of its storages.
template <class Transformer> constexpr flat_sizes flat_sizes_of(const Transformer& model, const sharding& how) {
    flat_sizes sizes;
    integer times = 0, blocks = 0;
    bool of_blocks = false;
    model.each_storage([&](integer n, bool are_blocks) { blocks += are_blocks ? n : 0; }, [](const nn::storage&) {});
    sizes.rooms = blocks > flat_sizes::most_rooms ? flat_sizes::most_rooms : 0;
    std::array<integer, 3> sums{};
    const auto close = [&] {
        integer weights = 0, gradients = 0;  // that take turns
        for (const copies c : all_copies) {
            integer& sum = sums[static_cast<std::size_t>(c)];
            const integer padded = how.padded(c, sum), shard = how.shard(c, padded);
            const bool turns_weights = of_blocks && sizes.rooms > 0 && how.shards_weights(c);
            const bool turns_gradients = of_blocks && sizes.rooms > 0 && how.shards_gradients(c);
            sizes.whole += times * padded;
            sizes.shards += times * shard;
            sizes.weights.stays += times * (turns_weights ? shard : padded);
            sizes.gradients.stays += times * (turns_gradients ? shard : padded);
            weights += turns_weights ? padded : 0;
            gradients += turns_gradients ? padded : 0;
            sum = 0;
        }
        sizes.weights.room = std::max(sizes.weights.room, weights);
        sizes.gradients.room = std::max(sizes.gradients.room, gradients);
    };
    model.each_storage(
        [&](integer n, bool are_blocks) {
            close();
            times = n;
            of_blocks = are_blocks;
        },
        [&](const nn::storage& facts) {
            sums[static_cast<std::size_t>(how.of(facts))] += round_up(facts.size(), storage_alignment);
            for (const nn::part& p : facts.parts) sizes.parts += p.name != nullptr ? times : 0;
            sizes.largest_storage = std::max(sizes.largest_storage, facts.size());
        });
    close();
    return sizes;
}

/// The places of a rank's storages, in the order of their global index, and their buckets, in the order of layers.
struct flat_layout {
    std::vector<placed_storage> storages;
    std::vector<bucket> buckets;
    flat_sizes sizes;
};

template <class Transformer> flat_layout flat_layout_of(const Transformer& model, const sharding& how) {
    flat_layout made{.storages = {}, .buckets = {}, .sizes = flat_sizes_of(model, how)};
    using A = typename Transformer::A;
    std::vector<integer> group;  // of each storage: it changes where a group of `flat_sizes_of` begins
    integer groups = -1, last = -2;
    model.template each_parameter<A>(nullptr, [&](auto&, const nn::storage& facts, auto...) {
        const bool first = groups < 0, after_embedding = groups == 0 && model.holds_embedding() && facts.layer < 0;
        if (first || after_embedding || facts.layer != last) ++groups;
        last = facts.layer;
        group.push_back(groups);
        made.storages.push_back({.facts = facts});
    });
    integer whole = 0, shards = 0, weights = 0, gradients = 0, blocks = 0;
    for (std::size_t begin = 0; begin < made.storages.size();) {
        std::size_t end = begin;
        while (end < made.storages.size() && group[end] == group[begin]) ++end;
        const integer layer = made.storages[begin].facts.layer;
        const bool is_block = layer >= 0 && layer < model.layers();
        const bool takes_turns = is_block && made.sizes.rooms > 0;
        const integer room = takes_turns ? blocks++ % made.sizes.rooms : 0;
        integer weights_room = made.sizes.weights.count(room), gradients_room = made.sizes.gradients.count(room);
        const auto place = [&](bool as_shard, integer& stays, integer& in_room, const bucket& b) {
            const integer first = stays, turn = in_room;
            (as_shard ? in_room : stays) += b.count;
            if (!as_shard) return placed_numbers{.whole = first};
            stays += how.shard(b.over, b.count);
            return placed_numbers{.whole = turn, .shard = first};
        };
        for (const copies c : all_copies) {
            bucket next{.over = c,
                        .layer = layer,
                        .at = whole,
                        .shard = shards,
                        .embedding = begin == 0 && model.holds_embedding(),
                        .of_block = is_block,
                        .room = static_cast<std::size_t>(room)};
            for (std::size_t i = begin; i < end; ++i) {
                placed_storage& s = made.storages[i];
                if (how.of(s.facts) != c) continue;
                s.at = next.at + next.count;
                s.bucket = static_cast<integer>(made.buckets.size());
                next.count += round_up(s.facts.size(), storage_alignment);
            }
            if (next.count == 0) continue;
            next.count = how.padded(c, next.count);
            whole += next.count;
            shards += how.shard(c, next.count);
            next.weights = place(takes_turns && how.shards_weights(c), weights, weights_room, next);
            next.gradients = place(takes_turns && how.shards_gradients(c), gradients, gradients_room, next);
            for (std::size_t i = begin; i < end; ++i) {
                placed_storage& s = made.storages[i];
                if (how.of(s.facts) != c) continue;
                s.weights = next.weights.whole + s.at - next.at;
                s.gradients = next.gradients.whole + s.at - next.at;
            }
            made.buckets.push_back(next);
        }
        begin = end;
    }
    if (whole != made.sizes.whole || weights != made.sizes.weights.stays || gradients != made.sizes.gradients.stays)
        fail("flat layout: found places for ", whole, " numbers, ", weights, " weights and ", gradients,
             " gradients, expected ", made.sizes.whole, ", ", made.sizes.weights.stays, " and ",
             made.sizes.gradients.stays);
    return made;
}

}  // namespace fathom::planning
