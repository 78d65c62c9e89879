// How ranks that hold the same parameters share the work on them: gradients summed, their norm, and AdamW on whole
// parameters or on this rank's shards (ZeRO).
#pragma once

#include <algorithm>
#include <fathom/comm/all_reduce.hpp>
#include <fathom/comm/mesh_links.hpp>
#include <fathom/device/host/queue.hpp>
#include <fathom/ops/elementwise.hpp>
#include <fathom/optim/gradient_norm.hpp>
#include <fathom/optim/update.hpp>
#include <fathom/recipe/rank_memory.hpp>
#include <fathom/train/block_traffic.hpp>
#include <type_traits>
#include <vector>

namespace fathom::train {

/// The flat arrays of one rank and the ranks that have copies of them.
template <class Transformer> class shared_state {
    using T = typename Transformer::number;
    using A = typename Transformer::A;

  public:
    /// `mirror`: the rank that holds the same stages (DualPipe), or one rank. `shares_embedding`: this is the first or
    /// the last stage, and both hold the embedding. `predivide`: as block_traffic has it.
    shared_state(const comm::mesh_links& links, const comm::link& mirror, planning::rank_memory<Transformer>& memory,
                 const planning::sharding& how, bool shares_embedding, double predivide, host::queue& queue)
        : links_(links),
          mirror_(mirror),
          memory_(memory),
          how_(how),
          shares_embedding_(shares_embedding),
          traffic_(links, how, predivide, queue, memory.layout, memory.weights.data, memory.gradients.data) {
        if (memory.gradients.data == nullptr) return;
        list_ranges();
        list_partial_sums();
    }

    /// What blocks tell as they work: none, alone.
    [[nodiscard]] nn::block_watch* watch() { return links_.world.size() > 1 ? &traffic_ : nullptr; }
    [[nodiscard]] block_traffic<T>& traffic() { return traffic_; }

    /// Takes this rank's shards of a layer whose weights were set where the whole ones lie, and of its masters, which
    /// then are where its whole gradients lie.
    void keep_layer(host::queue& queue, integer layer) {
        if (how_.zero == 0) return;
        for (const planning::bucket& b : memory_.layout.buckets) {
            if (b.layer != layer) continue;
            const held_state held = state_of(b);
            const integer row = held.first - b.at;
            if (b.weights.shard >= 0)
                ops::copy(queue, matrix<T>{held.weights, 1, held.count},
                          matrix<const T>{memory_.weights.data + b.weights.whole + row, 1, held.count});
            if constexpr (!std::is_same_v<T, A>)
                ops::copy(queue, matrix<A>{held.master, 1, held.count},
                          matrix<const A>{memory_.gradients.data + b.gradients.whole + row, 1, held.count});
        }
    }

    /// Waits until the gradients are summed over all ranks that hold the same parameters, or this rank's shards are.
    void reduce_gradients() {
        traffic_.finish();
        A* gradients = memory_.gradients.data;
        for (const partial_sum& s : partial_sums_)
            s.over.run(comm::all_reduce(gradients + s.at, s.count).from("gradients of what tensor ranks share"));
        if (mirror_.size() > 1 || shares_embedding_)
            for (const planning::bucket& b : memory_.layout.buckets) {
                A* const here = gradients + traffic_.gradients_here(b);
                const integer count = traffic_.count_here(b);
                mirror_.run(comm::all_reduce(here, count).from("gradients of both copies"));
                if (shares_embedding_ && b.embedding)
                    links_.ends.run(comm::all_reduce(here, count).from("gradient of the embedding"));
            }
    }

    /// The norm of all gradients, each counted once, and the factor that clips it.
    void norm_and_clip(host::queue& queue, double most) {
        for (std::size_t i = 0; i < ranges_.size(); ++i)
            optim::squared_norm(queue, ranges_[i].gradient, ranges_[i].count, memory_.square_partials,
                                memory_.squares + i);
        auto count = static_cast<integer>(ranges_.size());
        if (!alone()) {
            queue.enqueue(1, [&](integer, int) {
                double sum = 0;
                for (std::size_t i = 0; i < ranges_.size(); ++i) sum += ranges_[i].weight * memory_.squares[i];
                memory_.squares[0] = sum;
            });
            links_.world.run(comm::all_reduce(memory_.squares, 1).from("gradient norm"));
            count = 1;
        }
        optim::clip(queue, memory_.squares, count, most, memory_.state);
    }

    /// AdamW on what this rank moves; then all ranks have all weights.
    void move(host::queue& queue, const optim::adamw_facts& adamw) {
        for (const range& r : moved_) {
            const held_state held = state_of(*r.bucket);
            const optim::adamw_range<T, A> numbers{.master = held.master + r.first,
                                                   .weights = held.weights + r.first,
                                                   .m = held.first_moment + r.first,
                                                   .v = held.second_moment + r.first,
                                                   .count = r.count,
                                                   .decayed = optim::decays(adamw.group, r.vector ? 1 : 2)};
            optim::update(queue, numbers, static_cast<const A*>(r.gradient), adamw, memory_.state);
        }
        traffic_.share_weights();
    }

    /// Weights from the masters, after these were read from somewhere. All ranks call it together.
    void start_weights(host::queue& queue) {
        if constexpr (!std::is_same_v<T, A>)
            for (const planning::bucket& b : memory_.layout.buckets) {
                const held_state held = state_of(b);
                ops::copy(queue, matrix<T>{held.weights, 1, held.count}, matrix<const A>{held.master, 1, held.count});
            }
        traffic_.share_weights();
    }

    /// What this rank keeps of a bucket's weights and optimizer state: numbers [first, first + count) of arrays of
    /// whole ones.
    struct held_state {
        integer first = 0, count = 0;
        T* weights = nullptr;    // [count]
        A* gradients = nullptr;  // [count], once they are summed over ranks
        A *master = nullptr, *first_moment = nullptr, *second_moment = nullptr;  // [count]
    };
    [[nodiscard]] held_state state_of(const planning::bucket& b) const {
        const integer first = here(b), state = how_.zero == 0 ? first : b.shard;
        T* const weights = memory_.weights.data + traffic_.weights_here(b);
        A* master = nullptr;
        if constexpr (std::is_same_v<T, A>)
            master = weights;
        else
            master = memory_.master.data + state;
        return {.first = first,
                .count = traffic_.count_here(b),
                .weights = weights,
                .gradients = memory_.gradients.data + traffic_.gradients_here(b),
                .master = master,
                .first_moment = memory_.first_moments.data + state,
                .second_moment = memory_.second_moments.data + state};
    }
    /// Whether this rank, of all that hold the same state of that part, is the one to write it: who have all of it take
    /// turns.
    [[nodiscard]] bool writes(const planning::bucket& b, const nn::part& p, integer turn) const {
        const sharing_ranks& over = traffic_.group(b.over);
        const bool is_turn = how_.zero > 0 ? over.across.rank() == 0 : turn % over.all.size() == over.all.rank();
        return is_turn && links_.at.tp % tensor_copies(b, p) == 0 && mirror_.rank() == 0 &&
               !(shares_embedding_ && b.embedding && links_.at.pp != 0);
    }
    /// The same of what all ranks of a stage hold.
    [[nodiscard]] bool writes_buffers() const { return links_.stage.rank() == 0 && mirror_.rank() == 0; }

  private:
    /// Numbers of one storage that this rank moves, or whose norm it counts.
    struct range {
        const planning::bucket* bucket = nullptr;
        integer first = 0;  // in what this rank keeps of the bucket
        integer count = 0;
        A* gradient = nullptr;
        bool vector = false;
        double weight = 1;  // of its square in the sum over all ranks
    };
    /// Rows of a storage that adjacent tensor ranks hold alike, though others of it are split.
    struct partial_sum {
        comm::link over;
        integer at = 0, count = 0;  // in the array of gradients
    };

    /// Adjacent tensor ranks that hold the same of a part, beyond those that its bucket is over.
    [[nodiscard]] integer tensor_copies(const planning::bucket& b, const nn::part& p) const {
        return b.over != planning::copies::data ? 1 : p.copies == 0 ? how_.tensor : p.copies;
    }
    /// Where what this rank keeps of a bucket begins, as if all whole numbers lay one after another.
    [[nodiscard]] integer here(const planning::bucket& b) const {
        return how_.zero == 0 ? b.at : b.at + traffic_.group(b.over).shards.rank() * traffic_.count_here(b);
    }
    /// Every rank has all gradients, and one sum in one order is the norm.
    [[nodiscard]] bool alone() const { return !links_.of.split() && how_.zero == 0; }

    /// Cuts storages at the ends of what this rank moves, and of what it counts in the norm: under ZeRO its shards of
    /// both; else it moves everything, and counts its share where others have the same.
    void list_ranges() {
        for (const planning::placed_storage& s : memory_.layout.storages) {
            const planning::bucket& b = memory_.layout.buckets[static_cast<std::size_t>(s.bucket)];
            const integer end = s.at + s.facts.size();
            const sharing_ranks& ranks = traffic_.group(b.over);
            const integer first = here(b), last = first + traffic_.count_here(b);
            add(moved_, s, b, std::max(s.at, first), std::min(end, last), 1);
            integer counted_first = first, counted_last = last;
            if (how_.zero == 0 && !alone()) {
                const share_of mine{b.count, ranks.all.size(), ranks.all.rank()};
                counted_first = b.at + mine.first, counted_last = b.at + mine.first + mine.count;
            }
            double weight = 1.0 / static_cast<double>(mirror_.size() * ranks.across.size());
            if (shares_embedding_ && b.embedding && links_.at.pp != 0) weight = 0;
            for (const nn::part& p : s.facts.parts) {
                if (p.name == nullptr) break;
                // A stack's parts interleave: the storage is one range.
                const bool whole = p.count > 1 || alone();
                const integer part_at = whole ? s.at : s.at + p.first * s.facts.width;
                const integer part_end = whole ? end : part_at + p.rows * s.facts.width;
                add(ranges_, s, b, std::max(part_at, counted_first), std::min(part_end, counted_last),
                    weight / static_cast<double>(tensor_copies(b, p)));
                if (whole) break;
            }
        }
    }
    void add(std::vector<range>& to, const planning::placed_storage& s, const planning::bucket& b, integer first,
             integer last, double weight) const {
        if (last <= first) return;
        const integer from = first - here(b);
        to.push_back({&b, from, last - first, memory_.gradients.data + traffic_.gradients_here(b) + from,
                      s.facts.vector, weight});
    }
    void list_partial_sums() {
        if (how_.tensor == 1) return;
        for (integer copies = 2; copies <= how_.tensor; ++copies) {
            if (how_.tensor % copies != 0) continue;
            bool used = false;
            for (const planning::placed_storage& s : memory_.layout.storages) {
                const planning::bucket& b = memory_.layout.buckets[static_cast<std::size_t>(s.bucket)];
                if (b.over != planning::copies::data) continue;
                for (const nn::part& p : s.facts.parts) {
                    if (p.name == nullptr) break;
                    if ((p.copies == 0 ? how_.tensor : p.copies) != copies) continue;
                    used = true;
                    const integer at = s.at + p.first * s.facts.width;
                    const integer first = std::max(at, here(b));
                    const integer last = std::min(at + p.rows * s.facts.width, here(b) + traffic_.count_here(b));
                    if (last > first)
                        partial_sums_.push_back({{}, traffic_.gradients_here(b) + first - here(b), last - first});
                }
            }
            // All ranks of a tensor group hold the same kinds of parts, so all make the same groups.
            if (!used) continue;
            const comm::link over = copies == how_.tensor
                                        ? links_.tensor
                                        : links_.tensor.split(links_.at.tp / copies, links_.at.tp, "tensor copies");
            for (partial_sum& s : partial_sums_)
                if (s.over.size() == 1) s.over = over;
        }
    }

    const comm::mesh_links& links_;
    const comm::link& mirror_;
    planning::rank_memory<Transformer>& memory_;
    planning::sharding how_;
    bool shares_embedding_;
    block_traffic<T> traffic_;
    std::vector<range> moved_, ranges_;
    std::vector<partial_sum> partial_sums_;
};

}  // namespace fathom::train
