// Where every parameter lies in the flat arrays of weights, gradients and optimizer state, and how ranks that hold the
// same share them.
#pragma once

#include <algorithm>
#include <array>
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
    integer zero = 0;  // the ZeRO stage

    constexpr sharding() = default;
    constexpr sharding(const degrees& d, integer zero_stage)
        : data(d.dp * d.cp), stage(d.stage_ranks()), experts(d.expert_copies()), tensor(d.tp), zero(zero_stage) {}
    [[nodiscard]] constexpr integer ranks(copies of) const {
        return of == copies::data ? data : of == copies::stage ? stage : experts;
    }
    /// Who holds the same as this rank of a storage. Of one with split and whole parts, those that split ones have.
    [[nodiscard]] constexpr copies of(const nn::storage& facts) const {
        if (facts.of_experts) return copies::experts;
        if (tensor == 1) return copies::data;
        for (const nn::part& p : facts.parts)
            if (p.name != nullptr && p.copies != 0 && p.copies != tensor) return copies::data;
        return copies::stage;
    }
    /// Numbers of a bucket whose storages have `count`, so that all shards of it are equal.
    [[nodiscard]] constexpr integer padded(copies of, integer count) const {
        return round_up(count, storage_alignment * (zero > 0 ? ranks(of) : 1));
    }
    [[nodiscard]] constexpr integer shard(copies of, integer padded_count) const {
        return zero > 0 ? padded_count / ranks(of) : padded_count;
    }
};

/// Neighbouring storages of one layer that the same ranks hold: what is reduced, gathered and sharded at once.
struct bucket {
    copies over = copies::data;
    integer layer = -1;      // -1: outside all blocks
    integer at = 0;          // in arrays of whole numbers
    integer count = 0;       // with padding
    integer shard = 0;       // where this rank's shard begins in arrays of shards
    bool embedding = false;  // which the last stage may hold, too
};
/// A storage in its bucket.
struct placed_storage {
    nn::storage facts;
    integer at = 0;      // in arrays of whole numbers
    integer bucket = 0;  // its index
};
/// Sizes of a rank's flat arrays.
struct flat_sizes {
    integer whole = 0, shards = 0, parts = 0, largest_storage = 0;
};

/// The sizes of a model's arrays: group by group, without a list of its storages.
template <class Transformer> constexpr flat_sizes flat_sizes_of(const Transformer& model, const sharding& how) {
    flat_sizes sizes;
    integer times = 0;
    std::array<integer, 3> sums{};
    const auto close = [&] {
        for (const copies c : all_copies) {
            integer& sum = sums[static_cast<std::size_t>(c)];
            const integer padded = how.padded(c, sum);
            sizes.whole += times * padded;
            sizes.shards += times * how.shard(c, padded);
            sum = 0;
        }
    };
    model.each_storage(
        [&](integer n) {
            close();
            times = n;
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
    flat_layout made;
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
    for (std::size_t begin = 0; begin < made.storages.size();) {
        std::size_t end = begin;
        while (end < made.storages.size() && group[end] == group[begin]) ++end;
        for (const copies c : all_copies) {
            bucket next{.over = c,
                        .layer = made.storages[begin].facts.layer,
                        .at = made.sizes.whole,
                        .shard = made.sizes.shards,
                        .embedding = begin == 0 && model.holds_embedding()};
            for (std::size_t i = begin; i < end; ++i) {
                placed_storage& s = made.storages[i];
                if (how.of(s.facts) != c) continue;
                s.at = next.at + next.count;
                s.bucket = static_cast<integer>(made.buckets.size());
                next.count += round_up(s.facts.size(), storage_alignment);
            }
            if (next.count == 0) continue;
            next.count = how.padded(c, next.count);
            made.sizes.whole += next.count;
            made.sizes.shards += how.shard(c, next.count);
            made.buckets.push_back(next);
        }
        begin = end;
    }
    return made;
}

}  // namespace fathom::planning
