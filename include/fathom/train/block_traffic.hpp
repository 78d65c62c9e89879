// What travels between ranks with the same blocks while these work: gradients to be summed, as early as they are there,
// and under ZeRO the weights and gradients of which each rank keeps a shard.
#pragma once

#include <algorithm>
#include <array>
#include <fathom/comm/all_gather.hpp>
#include <fathom/comm/all_reduce.hpp>
#include <fathom/comm/mesh_links.hpp>
#include <fathom/comm/reduce_scatter.hpp>
#include <fathom/core/number.hpp>
#include <fathom/device/host/queue.hpp>
#include <fathom/nn/block_watch.hpp>
#include <fathom/ops/elementwise.hpp>
#include <fathom/recipe/flat_layout.hpp>
#include <vector>

namespace fathom::train {

/// The ranks that hold the same numbers as this one.
struct sharing_ranks {
    comm::link all;
    comm::link shards;  // of whose shards each is another part
    comm::link across;  // that keep the same shard

    /// All ranks of `group` make theirs together.
    sharing_ranks(const comm::link& group, integer ranks_that_shard) : all(group) {
        const integer n = ranks_that_shard;
        if (n == group.size()) {
            shards = group;
        } else if (n == 1) {
            across = group;
        } else {
            shards = group.split(group.rank() / n, group.rank(), "shards");
            across = group.split(group.rank() % n, group.rank(), "copies of shards");
        }
    }
};

/// Without ZeRO, and with stages 0 and 1 of it, a bucket is reduced once a step: that of a block as soon as its last
/// gradient is there. With stage 2 a block's gradients of every micro-batch are summed over ranks and added to this
/// rank's shard while the next block works; with stage 3 its weights are gathered before it works, while the last one
/// does. Blocks take turns in the rooms of the flat arrays. All ranks of a group must run the same blocks in one order.
template <class T> class block_traffic final : public nn::block_watch {
    using A = accumulator_t<T>;

  public:
    /// `predivide`: gradients are divided by it before they are summed over ranks, and their sum is multiplied by it.
    block_traffic(const comm::mesh_links& links, const planning::sharding& how, double predivide, host::queue& queue,
                  const planning::flat_layout& layout, T* weights, A* gradients)
        : how_(how),
          predivide_(predivide),
          queue_(queue),
          layout_(layout),
          weights_(weights),
          gradients_(gradients),
          groups_{sharing_ranks{links.data, ranks_of(planning::copies::data)},
                  sharing_ranks{links.stage, ranks_of(planning::copies::stage)},
                  sharing_ranks{links.expert_copies, ranks_of(planning::copies::experts)}},
          sums_(layout.buckets.size()),
          started_(layout.buckets.size()) {
        for (std::size_t i = 0; i < layout.buckets.size(); ++i) {
            const planning::bucket& b = layout.buckets[i];
            if (!b.of_block) continue;
            const auto number = static_cast<std::size_t>(b.layer);
            if (blocks_.size() <= number) blocks_.resize(number + 1);
            block& of = blocks_[number];
            if (of.count == 0) of.first = i, of.room = b.room;
            ++of.count;
        }
    }
    block_traffic(const block_traffic&) = delete;
    block_traffic& operator=(const block_traffic&) = delete;

    [[nodiscard]] const sharing_ranks& group(planning::copies of) const {
        return groups_[static_cast<std::size_t>(of)];
    }
    /// Of a bucket's numbers, those that this rank keeps when all is summed: where they begin, and how many they are.
    [[nodiscard]] integer weights_here(const planning::bucket& b) const { return here(b, b.weights); }
    [[nodiscard]] integer gradients_here(const planning::bucket& b) const { return here(b, b.gradients); }
    [[nodiscard]] integer count_here(const planning::bucket& b) const { return how_.shard(b.over, b.count); }

    /// Gradients are zero.
    void begin_step() {
        std::fill(started_.begin(), started_.end(), false);
        last_ = false;
    }
    /// Whether gradients that come now are the last ones of their blocks.
    void set_last(bool last) { last_ = last; }

    void needs_weights(integer number, bool backward) override {
        if (how_.zero < 3) return;
        bring_layer(number);
        const integer next = number + (backward ? -1 : 1);
        if (is_here(next)) bring(next);
    }
    /// The weights of a layer are there, if it is a block of this rank. All ranks of its groups call it together.
    void bring_layer(integer number) {
        if (how_.zero < 3 || !is_here(number)) return;
        bring(number);
        settle(weight_rooms_[blocks_[static_cast<std::size_t>(number)].room]);
    }
    void begins_gradients(integer number, bool early) override {
        if (how_.zero < 2) return;
        const block& of = blocks_[static_cast<std::size_t>(number)];
        if (early && !shares_experts(of)) return;
        room& r = gradient_rooms_[of.room];
        if (r.of != number || !r.open) {
            take_in(r);
            r.of = number, r.open = true, r.early = early;
            each_shared(of, [&](const planning::bucket& b) {
                ops::fill_zero(queue_, gradients_ + b.gradients.whole, b.count);
            });
        }
        r.early = r.early && early;
    }
    void has_gradients(integer number) override {
        const block& of = blocks_[static_cast<std::size_t>(number)];
        if (how_.zero >= 2) send(gradient_rooms_[of.room]);
        if (!last_) return;
        for (std::size_t i = of.first; i < of.first + of.count; ++i) start_sum(i);
    }

    /// Starts what is left to be summed and waits until each rank has its sums, or its shards of them.
    void finish() {
        for (room& r : gradient_rooms_) take_in(r);
        // In the order in which ranks with more to do started theirs.
        for (std::size_t n = blocks_.size(); n-- > 0;)
            for (std::size_t i = blocks_[n].first; i < blocks_[n].first + blocks_[n].count; ++i) start_sum(i);
        for (std::size_t i = 0; i < sums_.size(); ++i) start_sum(i);
        for (std::size_t i = 0; i < sums_.size(); ++i) {
            const planning::bucket& b = layout_.buckets[i];
            const sharing_ranks& ranks = group(b.over);
            sums_[i].wait();
            A* const sum = gradients_ + gradients_here(b);
            if (how_.zero > 0 && ranks.across.size() > 1) {
                if (b.gradients.shard >= 0 || ranks.shards.size() == 1) divide(sum, count_here(b));
                ranks.across.run(comm::all_reduce(sum, count_here(b)).from("gradients of copies of shards"));
            }
            if (ranks.all.size() > 1 && (b.gradients.shard < 0 || ranks.across.size() > 1))
                multiply(sum, count_here(b));
        }
        rest();
    }
    /// Waits for weights on their way.
    void rest() {
        for (room& r : weight_rooms_) settle(r);
    }
    /// Weights have moved: those of blocks that work are gathered anew, all others now.
    void share_weights() {
        rest();
        for (room& r : weight_rooms_) r.of = -1;
        if (how_.zero == 0) return;
        for (const planning::bucket& b : layout_.buckets)
            if (b.weights.shard < 0 && group(b.over).shards.size() > 1)
                group(b.over).shards.run(gathering(b).from("weights"));
    }

  private:
    /// The buckets of a block, and which rooms it uses.
    struct block {
        std::size_t first = 0, count = 0, room = 0;
    };
    /// Where one block at a time has all its weights, or gradients.
    struct room {
        integer of = -1;
        bool open = false;   // gradients are being added
        bool early = false;  // of experts only
        bool sent = false;   // and on their way
        std::array<comm::pending, 3> on_the_way;
    };

    [[nodiscard]] integer ranks_of(planning::copies of) const {
        return how_.zero > 0 ? how_.ranks(of) : how_.group(of);
    }
    [[nodiscard]] integer here(const planning::bucket& b, const planning::placed_numbers& at) const {
        if (how_.zero == 0) return at.whole;
        return at.shard >= 0 ? at.shard : at.whole + group(b.over).shards.rank() * count_here(b);
    }
    [[nodiscard]] bool is_here(integer number) const {
        return number >= 0 && number < static_cast<integer>(blocks_.size()) &&
               blocks_[static_cast<std::size_t>(number)].count > 0;
    }
    /// call(bucket) for the buckets of a block whose gradients are kept as shards.
    template <class Call> void each_shared(const block& of, Call&& call) const {
        for (std::size_t i = of.first; i < of.first + of.count; ++i)
            if (layout_.buckets[i].gradients.shard >= 0) call(layout_.buckets[i]);
    }
    [[nodiscard]] bool shares_experts(const block& of) const {
        bool shares = false;
        each_shared(of, [&](const planning::bucket& b) { shares = shares || b.over == planning::copies::experts; });
        return shares;
    }
    void divide(A* numbers, integer count) {
        if (predivide_ != 1) ops::scale(queue_, matrix<A>{numbers, 1, count}, 1 / predivide_);
    }
    void multiply(A* numbers, integer count) {
        if (predivide_ != 1) ops::scale(queue_, matrix<A>{numbers, 1, count}, predivide_);
    }

    /// Begins to bring a block's weights, if they are not there.
    void bring(integer number) {
        const block& of = blocks_[static_cast<std::size_t>(number)];
        room& r = weight_rooms_[of.room];
        if (r.of == number) return;
        settle(r);
        r.of = number;
        std::size_t next = 0;
        for (std::size_t i = of.first; i < of.first + of.count; ++i)
            if (const planning::bucket& b = layout_.buckets[i]; b.weights.shard >= 0)
                r.on_the_way[next++] = group(b.over).shards.start(gathering(b).from("weights of a block"));
    }
    [[nodiscard]] comm::request gathering(const planning::bucket& b) const {
        return comm::all_gather(weights_ + weights_here(b), weights_ + b.weights.whole, count_here(b));
    }
    static void settle(room& r) {
        for (comm::pending& p : r.on_the_way) p.wait();
    }
    /// Begins to sum the gradients in a room over ranks.
    void send(room& r) {
        if (!r.open) return;
        std::size_t next = 0;
        each_shared(blocks_[static_cast<std::size_t>(r.of)], [&](const planning::bucket& b) {
            if (r.early && b.over != planning::copies::experts) return;
            divide(gradients_ + b.gradients.whole, b.count);
            r.on_the_way[next++] = group(b.over).shards.start(
                comm::reduce_scatter(gradients_ + b.gradients.whole, summed_row(b), count_here(b))
                    .from("gradients of a block"));
        });
        r.open = false, r.sent = true;
    }
    /// Adds the sums of what was in a room to this rank's shards; the room is free.
    void take_in(room& r) {
        send(r);
        settle(r);
        if (!r.sent) return;
        each_shared(blocks_[static_cast<std::size_t>(r.of)], [&](const planning::bucket& b) {
            if (r.early && b.over != planning::copies::experts) return;
            const integer count = count_here(b);
            multiply(summed_row(b), count);
            ops::add(queue_, matrix<A>{gradients_ + b.gradients.shard, 1, count},
                     matrix<const A>{summed_row(b), 1, count});
        });
        r.sent = false;
    }
    [[nodiscard]] A* summed_row(const planning::bucket& b) const {
        return gradients_ + b.gradients.whole + group(b.over).shards.rank() * count_here(b);
    }
    /// Begins to sum a bucket that is summed once a step.
    void start_sum(std::size_t i) {
        const planning::bucket& b = layout_.buckets[i];
        if (started_[i] || b.gradients.shard >= 0) return;
        started_[i] = true;
        A* const whole = gradients_ + b.gradients.whole;
        const sharing_ranks& ranks = group(b.over);
        if (ranks.shards.size() == 1) return;
        divide(whole, b.count);
        sums_[i] = ranks.shards.start(
            how_.zero == 0 ? comm::all_reduce(whole, b.count).from("gradients")
                           : comm::reduce_scatter(whole, whole + ranks.shards.rank() * count_here(b), count_here(b))
                                 .from("gradients"));
    }

    planning::sharding how_;
    double predivide_;
    host::queue& queue_;
    const planning::flat_layout& layout_;
    T* weights_;
    A* gradients_;
    std::array<sharing_ranks, 3> groups_;  // by planning::copies
    std::vector<block> blocks_;            // by number; those of other ranks are empty
    std::array<room, planning::flat_sizes::most_rooms> weight_rooms_, gradient_rooms_;
    std::vector<comm::pending> sums_;  // by bucket
    std::vector<bool> started_;
    bool last_ = false;
};

}  // namespace fathom::train
