// Runs a plan on one rank, beside ranks that have other parts of the data or of the model: sets parameters up, takes
// steps and evaluates; a template over kinds of blocks, never over a recipe.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <fathom/comm/all_reduce.hpp>
#include <fathom/comm/mesh_links.hpp>
#include <fathom/device/host/memory.hpp>
#include <fathom/device/host/queue.hpp>
#include <fathom/device/host/workers.hpp>
#include <fathom/optim/update.hpp>
#include <fathom/parallel/count.hpp>
#include <fathom/recipe/plan.hpp>
#include <fathom/train/batch_view.hpp>
#include <fathom/train/detail/draw_initial.hpp>
#include <fathom/train/detail/named_storage.hpp>
#include <fathom/train/layout_facts.hpp>
#include <fathom/train/parameter_view.hpp>
#include <fathom/train/pipeline.hpp>
#include <fathom/train/routers.hpp>
#include <fathom/train/shared_state.hpp>
#include <fathom/train/step_result.hpp>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace fathom::train {

/// With several ranks, all call accumulate, step and evaluate together, each with its part of the batch (ranks of one
/// replica with the same); results are those of the whole, and the same on all. A rank of a whole model may have no
/// sequences, unless gradients or weights are sharded: then ranks need equally many micro-batches.
template <class Transformer> class engine {
  public:
    using transformer = Transformer;
    using T = typename Transformer::number;
    using A = typename Transformer::A;
    using parameter = parameter_view<T, A>;

    /// `model` is the whole one, whatever this rank holds of it. `bytes` is what its share takes; 0: it is counted
    /// here. Errors: a number of ranks that is not the layout's, or another number of bytes than the share takes.
    engine(const Transformer& model, const planning::rank_shape& shape, integer bytes, const optim::adamw_facts& adamw,
           const comm::link& ranks = {}, const layout_facts& layout = {})
        : links_(ranks, mesh_of(layout, ranks)),
          layout_(layout),
          schedule_(schedule_for(layout, layout.micro_batches)),
          model_(share(model, links_, schedule_, shape.batch)),
          shape_(shape_here(shape, links_, layout, schedule_)),
          adamw_(adamw),
          block_(bytes > 0 ? bytes : planning::bytes_of_share(model_, shape_)),
          workers_(static_cast<int>(shape.workers)),
          queue_(workers_, nullptr, 0) {
        check(adamw);
        if constexpr (Transformer::split)
            mirror_ = schedule_.has_value() && schedule_->view().shape.way == schedule::route::two_way
                          ? mirror_link(links_)
                          : comm::link{};
        arena memory{block_.data(), block_.size()};
        planning::carve(model_, memory, shape_, &memory_);
        if (memory.peak() != block_.size())
            fail("engine: carved ", memory.peak(), " bytes of an arena of ", block_.size(), ", expected all of it");
        queue_ = host::queue{workers_, memory_.scratch, memory_.scratch_bytes};
        now_ = shape_.batch;
        ops::rope_table<A>(model_.of.rope, memory_.cosines, memory_.sines);
        *memory_.state = {};
        list_parts(model);
        routers_ = routers<A>{model_, memory_.buffers};
        state_.emplace(links_, mirror_, memory_, shape_.shards, shares_embedding(), layout.gradient_predivide, queue_);
        if constexpr (Transformer::split)
            pipeline_.emplace(model_, queue_, memory_, arena{block_.data(), block_.size()}, links_,
                              planning::extents_here(model_, shape_.batch), shape_.slots.apart, *state_);
    }
    engine(const engine&) = delete;
    engine& operator=(const engine&) = delete;

    [[nodiscard]] const comm::link& ranks() const { return links_.world; }
    [[nodiscard]] const comm::mesh_links& links() const { return links_; }
    /// What this rank holds.
    [[nodiscard]] const Transformer& model() const { return model_; }
    [[nodiscard]] const planning::rank_shape& shape() const { return shape_; }
    [[nodiscard]] host::queue& queue() { return queue_; }
    [[nodiscard]] planning::rank_memory<Transformer>& memory() { return memory_; }
    [[nodiscard]] integer arena_bytes() const { return block_.size(); }
    [[nodiscard]] std::int64_t steps_done() const { return memory_.state->step; }
    void set_steps_done(std::int64_t steps) { memory_.state->step = steps; }

    /// Whether replicas wait for each other in every micro-batch, of which they must have equally many.
    [[nodiscard]] bool meets_replicas() const {
        return links_.of.dp > 1 && (shape_.shards.zero > 1 || links_.of.pp * links_.of.ep * links_.of.etp > 1);
    }
    /// Weights as products read them, from the master weights: after these were loaded. All ranks call it together.
    void round_weights() {
        if (shape_.trains) state_->start_weights(queue_);
    }
    /// Of a split model; nothing else has one.
    [[nodiscard]] const std::optional<schedule::built>& pipeline_schedule() const { return schedule_; }
    [[nodiscard]] pipeline_of<Transformer>& stages() { return *pipeline_; }
    /// The optimizer's state that this rank holds.
    [[nodiscard]] const shared_state<Transformer>& state() const { return *state_; }

    /// Normal numbers by seed and global index, so that a parameter starts equal in every layout; gains at one, biases
    /// at zero.
    void initialise(std::uint64_t seed) {
        for (std::size_t i = 0; i < parts_.size(); ++i) {
            const parameter& p = parts_[i];
            const nn::part& part = p.storage.parts[static_cast<std::size_t>(p.part)];
            // Under ZeRO a layer is drawn whole, its masters where its gradients will be.
            const matrix<A> master = shape_.shards.zero > 0 && !std::is_same_v<T, A> ? p.gradient : p.master;
            for (integer n = 0; n < part.count; ++n) {
                const random_stream source{seed, static_cast<std::uint64_t>(p.number + part.number + n)};
                const integer first = part.first + n * part.step;
                detail::draw_initial(queue_, p.value.rows_at(first, part.rows),
                                     master.empty() ? master : master.rows_at(first, part.rows), p.storage, part,
                                     source, model_.of.initializer_range);
            }
            if (i + 1 == parts_.size() || parts_[i + 1].storage.layer != p.storage.layer)
                state_->keep_layer(queue_, p.storage.layer);
        }
    }

    /// call(parameter_view, part) for every named part of every parameter, in the order of their global index. Under
    /// ZeRO-3 all ranks call it together, and the values of a block are those that the call sees only while it lasts.
    template <class Call> void each_part(Call&& call) {
        integer layer = -1;
        for (const parameter& p : parts_) {
            if (std::exchange(layer, p.storage.layer) != p.storage.layer)
                state_->traffic().bring_layer(p.storage.layer);
            call(p, p.storage.parts[static_cast<std::size_t>(p.part)]);
        }
    }
    /// call(name, matrix) for the bias of every router.
    template <class Call> void each_router_bias(Call&& call) {
        model_.each_buffer(&memory_.buffers, [&](auto& view, const nn::storage& facts, auto... prefixes) {
            if constexpr (std::is_same_v<std::remove_cvref_t<decltype(*view.data)>, A>)
                call(text_of(prefixes..., facts.parts[0].name), view);
        });
    }

    /// Forward and backward of a whole batch, cut in micro-batches; gradients are those of the batch's loss, summed
    /// over ranks in their order after the last micro-batch (under ZeRO: this rank's shards of them).
    step_result accumulate(const batch_view& b, const step_settings& settings) {
        ops::fill_zero(queue_, memory_.gradients.data, memory_.gradients.count);
        routers_.clear_loads(queue_);
        state_->traffic().begin_step();
        models::loss_terms terms;
        models::loss_weights weights;
        if constexpr (Transformer::split) {
            begin(b, settings);
            weights = weigh(settings);
            const auto micro_batches = static_cast<int>(pieces(b.sequences, shape_.batch.sequences));
            require_room(micro_batches);
            pipeline_->step(
                schedule_->view(), [&](int n) { return load(b, n * shape_.batch.sequences); }, weights, terms);
        } else {
            integer left = b.sequences;
            weights = each_micro_batch(b, settings, [&](const auto& part, const models::loss_weights& weight) {
                state_->traffic().set_last((left -= part.shape.sequences) == 0);
                model_.forward_backward(queue_, part, memory_.inputs, memory_.weight_views, memory_.buffers,
                                        memory_.saved, memory_.deferred, memory_.workspace, weight,
                                        memory_.gradient_views, terms);
            });
        }
        state_->reduce_gradients();
        for (const comm::link* over : {&links_.stage, &mirror_})
            if (over->size() > 1) routers_.sum_loads(*over);
        routers_.gather_routes(links_, settings.routes);
        return report(weights, terms);
    }

    /// Moves the weights by the gradients that are there, and the routers' biases by their loads.
    void update(const step_settings& settings) {
        optim::step_state& state = *memory_.state;
        state.step += 1;
        state.learning_rate = settings.learning_rate;
        state_->norm_and_clip(queue_, settings.clip);
        if (!std::isfinite(queue_.read(&state.gradient_norm).get())) {
            state.step -= 1;
            return;
        }
        state_->move(queue_, adamw_);
        if (settings.bias_update_speed != 0) routers_.update_biases(queue_, settings.bias_update_speed);
    }

    /// One training step. When the loss or the gradient norm is not finite nothing is moved and the result says so.
    [[gnu::noinline]] step_result step(const batch_view& b, const step_settings& settings) {
        step_result result = accumulate(b, settings);
        if (std::isfinite(result.loss))
            update(settings);
        else
            memory_.state->gradient_norm = std::numeric_limits<double>::quiet_NaN();
        result.step = memory_.state->step;
        result.gradient_norm = memory_.state->gradient_norm;
        result.learning_rate = settings.learning_rate;
        return result;
    }

    /// Losses of a batch without gradients; the weights stay.
    [[gnu::noinline]] step_result evaluate(const batch_view& b, const step_settings& settings) {
        models::loss_terms terms;
        if constexpr (Transformer::split) {
            begin(b, settings);
            const auto micro_batches = static_cast<int>(pieces(b.sequences, shape_.batch.sequences));
            pipeline_->evaluate(
                schedule_->view().shape, micro_batches, [&](int n) { return load(b, n * shape_.batch.sequences); },
                terms);
            state_->traffic().rest();
            routers_.gather_routes(links_, settings.routes);
            return report(weigh(settings), terms);
        } else {
            const auto weights = each_micro_batch(b, settings, [&](const auto& part, const models::loss_weights&) {
                model_.evaluate(queue_, part, memory_.inputs, memory_.weight_views, memory_.buffers, memory_.saved,
                                memory_.workspace, terms);
            });
            state_->traffic().rest();
            routers_.gather_routes(links_, settings.routes);
            return report(weights, terms);
        }
    }

    /// Cuts a batch in micro-batches and calls work(micro_batch, loss_weights) for each while memory().inputs holds it;
    /// gives the weights. Errors: those of `check` and of a routing record that does not fit.
    template <class Work>
    models::loss_weights each_micro_batch(const batch_view& b, const step_settings& settings, Work&& work) {
        begin(b, settings);
        const models::loss_weights weights = weigh(settings);
        for (integer first = 0; first < b.sequences; first += shape_.batch.sequences) work(load(b, first), weights);
        return weights;
    }

  private:
    static degrees mesh_of(const layout_facts& layout, const comm::link& ranks) {
        degrees mesh = layout.mesh;
        if (!mesh.split() && mesh.dp == 1) mesh.dp = ranks.size();
        return mesh;
    }
    static std::optional<schedule::built> schedule_for(const layout_facts& layout, integer micro_batches) {
        if constexpr (Transformer::split)
            return (layout.schedule != nullptr
                        ? layout.schedule
                        : &schedule::built::of<schedule::one_f_one_b>)(static_cast<int>(layout.mesh.pp),
                                                                       static_cast<int>(micro_batches));
        else
            return std::nullopt;
    }
    Transformer share(const Transformer& whole, const comm::mesh_links& links,
                      const std::optional<schedule::built>& table, nn::extents batch) const {
        if constexpr (Transformer::split) {
            const int rank = static_cast<int>(links.at.pp);
            const models::held_stages held =
                layout_.layers == nullptr
                    ? models::held_stages{}
                    : models::stages_of(table->view().shape, rank, layout_.layers, whole.layers());
            return models::share_of_model(whole, links.of, links.at, held, batch);
        } else {
            return whole;
        }
    }
    static planning::rank_shape shape_here(planning::rank_shape shape, const comm::mesh_links& links,
                                           const layout_facts& layout, const std::optional<schedule::built>& table) {
        if (shape.trains) shape.shards = planning::sharding{links.of, layout.zero, layout.shard_within};
        if (table.has_value()) shape.slots = planning::slots_of(table->view(), static_cast<int>(links.at.pp));
        return shape;
    }
    /// DualPipe keeps every stage twice: the two ranks that hold the same pair.
    static comm::link mirror_link(const comm::mesh_links& links) {
        return links.pipeline.split(std::min(links.at.pp, links.of.pp - 1 - links.at.pp), links.at.pp, "mirror");
    }
    /// The first and the last stage both hold the embedding, on two ranks.
    [[nodiscard]] bool shares_embedding() const {
        return Transformer::split && links_.of.pp > 1 && mirror_.size() == 1 && model_.holds_embedding() &&
               (model_.of.num_nextn_predict_layers > 0 || model_.of.tie_word_embeddings) &&
               !(model_.held.embedding() && model_.held.head());
    }
    /// A schedule for that many micro-batches, within the room that there is.
    void require_room(int micro_batches) {
        if (schedule_->view().shape.micro_batches == micro_batches) return;
        schedule::built next = *schedule_for(layout_, micro_batches);
        if (!shape_.slots.holds(planning::slots_of(next.view(), static_cast<int>(links_.at.pp))))
            fail("engine: found a batch of ", micro_batches, " micro-batches, which ", next.name(),
                 " keeps more of than the ", layout_.micro_batches,
                 " that there is room for; expected at most as many");
        schedule_ = std::move(next);
    }
    /// Errors: those of `check`, `require_alike` and `routers::set_routes`, or lengths that context ranks cannot share.
    void begin(const batch_view& b, const step_settings& settings) {
        require_alike(pieces(b.sequences, shape_.batch.sequences));
        const bool may_be_empty = links_.of.dp > 1 && !links_.of.split() && shape_.shards.zero < 2;
        if (b.sequences != 0 || !may_be_empty)
            check(b, shape_.batch.length, model_.of.num_nextn_predict_layers, model_.of.vocab_size,
                  model_.of.max_position_embeddings);
        if (links_.of.cp > 1 && b.length % (2 * links_.of.cp) != 0)
            fail("batch: found sequences of ", b.length, " tokens, expected a multiple of ", 2 * links_.of.cp,
                 ": twice the ", links_.of.cp, " context ranks");
        count_targets(b);
        routers_.set_routes(links_, b, settings.routes);
    }
    /// Errors: replicas that meet and have other numbers of micro-batches.
    void require_alike(integer micro_batches) const {
        if (!meets_replicas()) return;
        constexpr integer most = 1 << 20;
        integer seen[2] = {micro_batches * most + links_.at.dp, (most - micro_batches) * most + links_.at.dp};
        links_.replica.run(comm::all_reduce(seen, 2, comm::reduction::max).from("numbers of micro-batches"));
        const integer largest = seen[0] / most, smallest = most - seen[1] / most;
        if (largest != smallest)
            fail("batch: found ", largest, " micro-batches on replica ", seen[0] % most, " and ", smallest,
                 " on replica ", seen[1] % most, ", expected equally many on all");
    }
    /// Lists all parts that are here with their global index, which is their place among those of the whole model.
    /// Once, at the start: what walks the model's types is code that every visitor pays for.
    void list_parts(const Transformer& whole) {
        struct numbered_name {
            std::string name;
            integer number;
        };
        std::vector<numbered_name> names;
        integer number = 0;
        for (const detail::named_storage& s : detail::storages_of(whole))
            for (const nn::part& p : s.facts.parts) {
                if (p.name == nullptr) break;
                names.push_back({s.prefix + p.name, number});
                number += p.whole_count();
            }
        std::size_t at = 0, storage = 0;
        for (const detail::named_storage& s : detail::storages_of(model_)) {
            const planning::placed_storage& place = memory_.layout.storages[storage++];
            for (int i = 0; i < static_cast<int>(s.facts.parts.size()); ++i) {
                const char* name = s.facts.parts[static_cast<std::size_t>(i)].name;
                if (name == nullptr) break;
                const std::string full = s.prefix + name;
                while (at < names.size() && names[at].name != full) ++at;
                if (at == names.size()) fail("engine: found the parameter ", full, ", expected one of the whole model");
                add_part(s.facts, i, full, names[at].number, place);
            }
        }
    }
    void add_part(const nn::storage& facts, int part, const std::string& name, integer number,
                  const planning::placed_storage& at) {
        const bool whole = shape_.shards.zero == 0;
        const auto place = [&](A* flat, integer offset) {
            return flat == nullptr ? matrix<A>{} : matrix<A>{flat + offset, facts.rows, facts.width};
        };
        parameter p;
        p.name = name, p.storage = facts, p.part = part, p.number = number;
        p.value = {memory_.weights.data + at.weights, facts.rows, facts.width};
        p.gradient = place(memory_.gradients.data, at.gradients);
        if (whole) {
            if constexpr (std::is_same_v<T, A>) {
                if (shape_.trains) p.master = p.value;
            } else {
                p.master = place(memory_.master.data, at.at);
            }
            p.first_moment = place(memory_.first_moments.data, at.at);
            p.second_moment = place(memory_.second_moments.data, at.at);
        }
        parts_.push_back(std::move(p));
    }
    /// A struct of numbers of one kind, each summed over ranks.
    template <class Number, class Sums, class Mine>
    [[nodiscard]] static Sums sum_over(const comm::link& over, const Mine& mine, const char* label) {
        auto numbers = std::bit_cast<std::array<Number, sizeof(Sums) / sizeof(Number)>>(mine);
        over.run(comm::all_reduce(numbers.data(), static_cast<integer>(numbers.size())).from(label));
        return std::bit_cast<Sums>(numbers);
    }
    /// Whether position i of a sequence has a target for depth k, and which.
    static std::int32_t target_of(const batch_view& b, integer row, integer i, integer k) {
        const integer at = row * b.length + i;
        if (k == 0) return b.targets[at];
        if (b.starts != nullptr && b.starts[at] != b.starts[at + k]) return ignored;  // another document
        return b.targets[at + k];
    }
    /// Counts what losses are divided by, over the batch of all replicas.
    void count_targets(const batch_view& b) {
        batch_counts<counted::local> mine{.sequences = {b.sequences}, .tokens = {b.sequences * b.length}};
        for (integer k = 0; k <= model_.of.num_nextn_predict_layers; ++k) {
            integer& count = mine.targets[static_cast<std::size_t>(k)].value;
            for (integer row = 0; row < b.sequences; ++row)
                for (integer i = 0; i < b.length - k; ++i) count += target_of(b, row, i, k) != ignored ? 1 : 0;
        }
        counts_ = sum_over<integer, batch_counts<counted::global>>(links_.replica, mine, "counts of targets");
    }
    [[nodiscard]] models::loss_weights weigh(const step_settings& settings) const {
        models::loss_weights w;
        w.token = weight_in_mean(1, counts_.targets[0]);
        w.z = settings.z_loss * w.token;
        w.balance = weight_in_mean(settings.balance_alpha, counts_.sequences);
        const integer depths = model_.of.num_nextn_predict_layers;
        for (integer k = 0; k < depths; ++k)
            w.mtp[static_cast<std::size_t>(k)] = weight_in_mean(settings.mtp_lambda / static_cast<double>(depths),
                                                                counts_.targets[static_cast<std::size_t>(k + 1)]);
        return w;
    }
    /// Copies this rank's places of sequences [first, ...) into the arena and, of a whole model, carves what depends on
    /// their number and length.
    nn::micro_batch<A> load(const batch_view& b, integer first) {
        const nn::extents whole{std::min(shape_.batch.sequences, b.sequences - first), b.length};
        const nn::extents shape = planning::extents_here(model_, whole);
        if constexpr (!Transformer::split)
            if (shape.sequences != now_.sequences || shape.length != now_.length) {
                arena memory{block_.data(), block_.size()};
                memory.rewind(memory_.activations_at);
                planning::carve_activations(model_, memory, whole, shape_, &memory_);
                now_ = shape;
            }
        for (integer k = 0; k <= model_.of.num_nextn_predict_layers; ++k) {
            models::depth_inputs& in = memory_.inputs[static_cast<std::size_t>(k)];
            integer to = 0;
            const auto take = [&](integer row, integer begin, integer count) {
                for (integer i = begin; i < begin + count; ++i, ++to) {
                    const integer from = (first + row) * b.length + i;
                    in.ids[to] = b.tokens[from + k];
                    in.targets[to] = target_of(b, first + row, i, k);
                    in.positions[to] = b.positions != nullptr ? b.positions[from] : static_cast<std::int32_t>(i);
                    in.starts[to] = b.starts != nullptr ? b.starts[from] : 0;
                }
            };
            for (integer row = 0; row < shape.sequences; ++row) {
                if constexpr (Transformer::split) {
                    const nn::context_share context = model_.context_of(shape, k);
                    for (const int which : {0, 1}) {
                        const auto run = context.places(context.rank, which);
                        take(row, run.first, run.count);
                    }
                } else {
                    take(row, 0, b.length - k);
                }
            }
        }
        nn::micro_batch<A> made{.shape = shape,
                                .positions = memory_.inputs[0].positions,
                                .starts = memory_.inputs[0].starts,
                                .cosines = memory_.cosines,
                                .sines = memory_.sines};
        made.watch = state_->watch();
        made.context = model_.context_of(shape, 0);
        made.first_sequence = first;
        if constexpr (Transformer::split) made.ranks = &links_;
        return made;
    }
    [[nodiscard]] step_result report(const models::loss_weights& weights, models::loss_terms terms) const {
        terms = sum_over<double, models::loss_terms>(links_.world, terms, "losses");
        step_result r;
        r.cross_entropy = weights.token * terms.main.cross_entropy;
        r.z_loss = weights.z * terms.main.z;
        r.balance_loss = terms.balance;
        for (std::size_t k = 0; k < weights.mtp.size(); ++k) r.mtp_loss += weights.mtp[k] * terms.mtp[k].cross_entropy;
        r.loss = r.cross_entropy + r.z_loss + r.balance_loss + r.mtp_loss;
        r.tokens = counts_.tokens.value;
        r.targets = counts_.targets[0].value;
        r.step = memory_.state->step;
        return r;
    }

    /// Numbers of one kind, one after another, which are summed over ranks together.
    template <counted Of> struct batch_counts {
        count<Of> sequences, tokens;
        std::array<count<Of>, models::max_prediction_depths + 1> targets{};  // that count, by depth of prediction
    };

    comm::mesh_links links_;
    layout_facts layout_;
    std::optional<schedule::built> schedule_;  // of a split model
    comm::link mirror_;
    Transformer model_;
    planning::rank_shape shape_;
    optim::adamw_facts adamw_;
    host::memory block_;
    host::workers workers_;
    host::queue queue_;
    planning::rank_memory<Transformer> memory_;
    nn::extents now_;
    batch_counts<counted::global> counts_;
    std::vector<parameter> parts_;  // of all storages, in the order of their global index
    routers<A> routers_;
    std::optional<shared_state<Transformer>> state_;
    std::optional<pipeline_of<Transformer>> pipeline_;
};

}  // namespace fathom::train
