// What ranks that hold the same parameters hand to each other in a step: gradients, weights, and its few numbers.
#pragma once

#include <algorithm>
#include <array>
#include <fathom/core/error.hpp>
#include <fathom/cost/detail/block_turns.hpp>
#include <fathom/cost/traffic.hpp>
#include <fathom/models/loss.hpp>
#include <fathom/parallel/degrees.hpp>

namespace fathom::detail {

/// The turns of a rank's blocks, by the segment of the model that they are of.
template <class Transformer> struct turns_by_segment {
    const Transformer& model;
    bool any = false;  // whether blocks keep shards at all
    std::array<block_turns::counts, std::tuple_size_v<decltype(Transformer::segments)>> of{};

    constexpr void operator()(integer number, const block_turns::counts& more) {
        integer index = 0;
        model.each_segment([&](const auto& part, auto) {
            block_turns::counts& to = of[static_cast<std::size_t>(index++)];
            if (number < part.first || number >= part.first + part.count) return;
            to.gathers += more.gathers;
            to.scatters += more.scatters;
            to.early_scatters += more.early_scatters;
        });
    }
    [[nodiscard]] constexpr bool has_experts(integer number) const {
        bool has = false;
        model.each_segment([&](const auto& part, auto) {
            if (number >= part.first && number < part.first + part.count)
                has = std::remove_cvref_t<decltype(part.layer)>::buffered;
        });
        return has;
    }
};

/// Equal layers, or what lies outside of them, as flat arrays hold it: one bucket for each kind of ranks that have
/// copies.
struct bucket_group {
    integer times = 0;
    bool blocks = false, embedding = false;
    integer segment = -1;  // of blocks
    std::array<integer, 3> counts{};
    /// Rows in the bucket over `data` that several tensor ranks hold: where they begin, how many numbers.
    struct range {
        integer first = 0, count = 0;
    };
    std::array<range, 16> shared{};
    integer shared_count = 0;
};

template <class Transformer> struct state_traffic {
    using T = typename Transformer::number;
    using A = typename Transformer::A;
    using among = cost::among;
    using operation = comm::operation;

    const Transformer& model;  // this rank's share
    degrees mesh;
    rank_place at;
    planning::sharding how;
    bool mirrored;  // another rank holds the same stages (DualPipe)
    cost::traffic& to;

    constexpr void add(among ranks, operation kind, integer bytes) const { to.fixed.add(ranks, kind, bytes); }

    /// call(group) for all of them, in the order of the flat arrays.
    template <class Call> constexpr void each_group(Call&& call) const {
        bucket_group g;
        integer segment = -1;
        bool any = false;
        const auto close = [&] {
            if (!any) return;
            for (const planning::copies c : planning::all_copies) {
                integer& count = g.counts[static_cast<std::size_t>(c)];
                count = how.padded(c, count);
            }
            call(g);
        };
        model.each_storage(
            [&](integer times, bool blocks) {
                close();
                g = {.times = times, .blocks = blocks, .embedding = !any && model.holds_embedding()};
                if (blocks) g.segment = segment = next_segment(segment);
                any = true;
            },
            [&](const nn::storage& facts) {
                const planning::copies c = how.of(facts);
                integer& count = g.counts[static_cast<std::size_t>(c)];
                if (c == planning::copies::data && mesh.tp > 1)
                    for (const nn::part& p : facts.parts) {
                        if (p.name == nullptr) break;
                        if (p.copies == 1) continue;
                        if (g.shared_count == static_cast<integer>(g.shared.size()))
                            fail("traffic: found more than ", g.shared_count,
                                 " parts of a layer that tensor ranks share, expected at most as many");
                        g.shared[static_cast<std::size_t>(g.shared_count++)] = {count + p.first * facts.width,
                                                                                p.rows * facts.width};
                    }
                count += round_up(facts.size(), planning::storage_alignment);
            });
        close();
    }

    /// Gradients and weights, of blocks that took such turns.
    constexpr void parameters(const turns_by_segment<Transformer>& turns) const {
        each_group([&](const bucket_group& g) {
            for (const planning::copies c : planning::all_copies)
                if (g.counts[static_cast<std::size_t>(c)] > 0) bucket(g, c, turns);
            if (mesh.tp == 1) return;
            const integer here = how.shard(planning::copies::data, g.counts[0]);
            const integer begin = shard_rank() * here;
            for (integer i = 0; i < g.shared_count; ++i) {
                const bucket_group::range& r = g.shared[static_cast<std::size_t>(i)];
                const integer count = std::min(r.first + r.count, begin + here) - std::max(r.first, begin);
                if (count > 0) add(among::tensor, operation::all_reduce, g.times * count * sizeof_sum);
            }
        });
    }
    /// Counts, losses, the norm and the loads of experts.
    constexpr void numbers() const {
        constexpr integer of_count = sizeof(integer);
        if (mesh.dp > 1) {
            if (how.zero >= 2 || mesh.pp > 1 || mesh.ep * mesh.etp > 1)
                add(among::replica, operation::all_reduce, 2 * of_count);
            add(among::replica, operation::all_reduce, (3 + models::max_prediction_depths) * of_count);
        }
        if (mesh.ranks() == 1) return;
        add(among::world, operation::all_reduce, sizeof(models::loss_terms));
        if (mesh.split() || how.zero > 0) add(among::world, operation::all_reduce, sizeof(double));
        integer loads = 0;
        model.each_kind_of_buffers([&](auto& buffers, const auto& layer, integer times) {
            layer.each_buffer(buffers, [&](auto& view, const nn::storage& facts, auto...) {
                if constexpr (std::is_same_v<std::remove_cvref_t<decltype(*view.data)>, integer>)
                    loads += times * facts.size() * of_count;
            });
        });
        if (mesh.stage_ranks() > 1) add(among::stage, operation::all_reduce, loads);
        if (mirrored) add(among::pipeline, operation::all_reduce, loads);
    }

  private:
    static constexpr integer sizeof_sum = sizeof(A), sizeof_number = sizeof(T);

    [[nodiscard]] constexpr integer next_segment(integer segment) const {
        integer index = 0, found = -1;
        model.each_segment([&](const auto& part, auto) {
            if (found < 0 && index > segment && model.held.total(part.first, part.count) > 0) found = index;
            ++index;
        });
        return found;
    }
    [[nodiscard]] constexpr integer shard_rank() const {
        return how.zero > 0 ? (at.dp * mesh.cp + at.cp) % how.ranks(planning::copies::data) : 0;
    }
    [[nodiscard]] constexpr bool shares_embedding() const {
        return Transformer::split && mesh.pp > 1 && !mirrored && model.holds_embedding() &&
               (model.of.num_nextn_predict_layers > 0 || model.of.tie_word_embeddings) &&
               !(model.held.embedding() && model.held.head());
    }
    template <class Turns> constexpr void bucket(const bucket_group& g, planning::copies c, Turns&& turns_of) const {
        const among ranks = c == planning::copies::data    ? among::data
                            : c == planning::copies::stage ? among::stage
                                                           : among::expert_copies;
        const integer count = g.counts[static_cast<std::size_t>(c)], here = how.shard(c, count);
        const integer shards = how.zero > 0 ? how.ranks(c) : how.group(c), across = how.group(c) / shards;
        const bool takes_turns = g.blocks && turns_of.any && how.shards_gradients(c);
        const bool gathered_in_turns = takes_turns && how.shards_weights(c);
        if (shards > 1 && !takes_turns)
            add(ranks, how.zero == 0 ? operation::all_reduce : operation::reduce_scatter, g.times * count * sizeof_sum);
        if (takes_turns) {
            const block_turns::counts& turns = turns_of.of[static_cast<std::size_t>(g.segment)];
            const integer scatters = turns.scatters + (c == planning::copies::experts ? turns.early_scatters : 0);
            add(ranks, operation::reduce_scatter, scatters * count * sizeof_sum);
            if (gathered_in_turns) add(ranks, operation::all_gather, turns.gathers * count * sizeof_number);
        }
        if (how.zero > 0 && across > 1) add(ranks, operation::all_reduce, g.times * here * sizeof_sum);
        if (mirrored) add(among::pipeline, operation::all_reduce, g.times * here * sizeof_sum);
        if (g.embedding && shares_embedding()) add(among::ends, operation::all_reduce, here * sizeof_sum);
        if (how.zero > 0 && shards > 1 && !gathered_in_turns)
            add(ranks, operation::all_gather, g.times * count * sizeof_number);
    }
};

}  // namespace fathom::detail
