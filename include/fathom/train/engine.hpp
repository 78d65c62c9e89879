// Runs a plan on one rank, beside ranks that do the same with other data: sets parameters up, takes steps and
// evaluates; a template over kinds of blocks, never over a recipe.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <fathom/comm/all_reduce.hpp>
#include <fathom/comm/link.hpp>
#include <fathom/core/random_stream.hpp>
#include <fathom/device/host/memory.hpp>
#include <fathom/device/host/queue.hpp>
#include <fathom/device/host/workers.hpp>
#include <fathom/optim/update.hpp>
#include <fathom/recipe/plan.hpp>
#include <fathom/train/batch_view.hpp>
#include <limits>
#include <string>

namespace fathom::train {

/// What of a step may change from step to step.
struct step_settings {
    double learning_rate = 0;
    double clip = 1;                  // global norm; 0: off
    double mtp_lambda = 0.3;          // weight of multi-token prediction
    double balance_alpha = 1e-4;      // sequence-wise balance loss
    double z_loss = 0;                // coefficient of mean(logsumexp^2)
    double bias_update_speed = 1e-3;  // gamma of the router's bias
};

/// What a step or an evaluation saw.
struct step_result {
    std::int64_t step = 0;
    double loss = 0;           // the sum of all terms
    double cross_entropy = 0;  // of the main model, mean over targets that count
    double mtp_loss = 0;       // as it enters the loss
    double balance_loss = 0;   // as it enters the loss
    double z_loss = 0;         // as it enters the loss
    double gradient_norm = 0;
    double learning_rate = 0;
    std::int64_t tokens = 0;   // of the batch
    std::int64_t targets = 0;  // that count
};

/// One parameter of a run under its global name.
template <class T, class A> struct parameter_view {
    std::string name;  // `*` stands for the number of a matrix in a stack
    nn::storage storage;
    int part = 0;
    matrix<T> value;  // the whole storage; the part's matrices lie in it as nn::part says
    matrix<A> master, gradient, first_moment, second_moment;
};

/// With several ranks, all call accumulate, step and evaluate together, each with its part of the batch (which may be
/// of no sequences); results are those of the whole, and the same on all.
template <class Transformer> class engine {
  public:
    using transformer = Transformer;
    using T = typename Transformer::number;
    using A = typename Transformer::A;
    using parameter = parameter_view<T, A>;

    engine(const Transformer& model, const planning::rank_shape& shape, integer bytes, const optim::adamw_facts& adamw,
           comm::link ranks = {})
        : ranks_(ranks),
          model_(model),
          shape_(shape),
          adamw_(adamw),
          block_(bytes),
          workers_(static_cast<int>(shape.workers)),
          queue_(workers_, nullptr, 0) {
        check(adamw);
        arena memory{block_.data(), bytes};
        planning::carve(model_, memory, shape_, &memory_);
        if (memory.peak() != bytes)
            fail("engine: carved ", memory.peak(), " bytes of an arena of ", bytes, ", expected all of it");
        queue_ = host::queue{workers_, memory_.scratch, memory_.scratch_bytes};
        now_ = shape_.batch;
        ops::rope_table<A>(model_.of.rope, memory_.cosines, memory_.sines);
        *memory_.state = {};
        model_.template each_parameter<T>(&memory_.weight_views,
                                          [&](auto& view, const nn::storage& facts, auto... prefixes) {
                                              if (shape_.trains) storages_.push_back(facts);
                                              add_parts(view.data, facts, text_of(prefixes...));
                                          });
    }

    [[nodiscard]] const comm::link& ranks() const { return ranks_; }
    [[nodiscard]] const Transformer& model() const { return model_; }
    [[nodiscard]] host::queue& queue() { return queue_; }
    [[nodiscard]] planning::rank_memory<Transformer>& memory() { return memory_; }
    [[nodiscard]] integer arena_bytes() const { return block_.size(); }
    [[nodiscard]] std::int64_t steps_done() const { return memory_.state->step; }
    void set_steps_done(std::int64_t steps) { memory_.state->step = steps; }

    /// Weights as products read them, from the master weights: after these were loaded.
    void round_weights() {
        if constexpr (!std::is_same_v<T, A>)
            if (memory_.master.data != nullptr)
                ops::copy(queue_, matrix<T>{memory_.weights.data, 1, memory_.weights.count},
                          matrix<const A>{memory_.master.data, 1, memory_.master.count});
    }

    /// Normal numbers by seed and global index, so that a parameter starts equal in every layout; gains at one, biases
    /// at zero.
    void initialise(std::uint64_t seed) {
        std::uint64_t number = 0;
        each_part([&](const parameter& p, const nn::part& part) {
            for (integer n = 0; n < part.count; ++n, ++number) {
                const matrix<T> values = p.value.rows_at(part.first + n * part.step, part.rows);
                const matrix<A> masters =
                    shape_.trains ? p.master.rows_at(part.first + n * part.step, part.rows) : matrix<A>{};
                start(values, masters, p.storage.start, random_stream{seed, number});
            }
        });
    }

    /// call(parameter_view, part) for every named part of every parameter, in the order of their global index.
    template <class Call> void each_part(Call&& call) {
        for (const parameter& p : parts_) call(p, p.storage.parts[static_cast<std::size_t>(p.part)]);
    }
    /// call(name, matrix) for the bias of every router.
    template <class Call> void each_router_bias(Call&& call) {
        model_.each_buffer(&memory_.buffers, [&](auto& view, const nn::storage& facts, auto... prefixes) {
            if constexpr (std::is_same_v<std::remove_cvref_t<decltype(*view.data)>, A>)
                call(text_of(prefixes..., facts.parts[0].name), view);
        });
    }

    /// Forward and backward of a whole batch, cut in micro-batches; gradients are those of the batch's loss, summed
    /// over ranks in their order after the last micro-batch.
    step_result accumulate(const batch_view& b, const step_settings& settings) {
        ops::fill_zero(queue_, memory_.gradients.data, memory_.gradients.count);
        clear_loads();
        models::loss_terms terms;
        const auto weights = each_micro_batch(b, settings, [&](const auto& part, const models::loss_weights& weight) {
            model_.forward_backward(queue_, part, memory_.inputs, memory_.weight_views, memory_.buffers, memory_.saved,
                                    memory_.deferred, memory_.workspace, weight, memory_.gradient_views, terms);
        });
        if (ranks_.size() > 1) {
            ranks_.run(comm::all_reduce(memory_.gradients.data, memory_.gradients.count).from("gradients"));
            each_router([&](auto&, auto& load) {
                ranks_.run(comm::all_reduce(load.data, load.size()).from("loads of experts"));
            });
        }
        return report(weights, terms);
    }

    /// Moves the weights by the gradients that are there, and the routers' biases by their loads.
    void update(const step_settings& settings) {
        optim::step_state& state = *memory_.state;
        state.step += 1;
        state.learning_rate = settings.learning_rate;
        integer at = 0;
        for (std::size_t i = 0; i < storages_.size(); ++i) {
            optim::squared_norm(queue_, memory_.gradients.data + at, storages_[i].size(), memory_.square_partials,
                                memory_.squares + i);
            at += round_up(storages_[i].size(), planning::storage_alignment);
        }
        optim::clip(queue_, memory_.squares, static_cast<integer>(storages_.size()), settings.clip, memory_.state);
        if (!std::isfinite(queue_.read(&state.gradient_norm).get())) {
            state.step -= 1;
            return;
        }
        at = 0;
        for (const nn::storage& facts : storages_) {
            const optim::adamw_range<T, A> range{.master = memory_.master.data + at,
                                                 .weights = memory_.weights.data + at,
                                                 .m = memory_.first_moments.data + at,
                                                 .v = memory_.second_moments.data + at,
                                                 .count = facts.size(),
                                                 .decayed = optim::decays(adamw_.group, facts.vector ? 1 : 2)};
            optim::update(queue_, range, static_cast<const A*>(memory_.gradients.data + at), adamw_, memory_.state);
            at += round_up(facts.size(), planning::storage_alignment);
        }
        if (settings.bias_update_speed != 0) update_router_biases(settings.bias_update_speed);
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
        const auto weights = each_micro_batch(b, settings, [&](const auto& part, const models::loss_weights&) {
            model_.evaluate(queue_, part, memory_.inputs, memory_.weight_views, memory_.buffers, memory_.saved,
                            memory_.workspace, terms);
        });
        return report(weights, terms);
    }

    /// Cuts a batch in micro-batches and calls work(micro_batch, loss_weights) for each while memory().inputs holds it;
    /// gives the weights. Errors: those of `check`.
    template <class Work>
    models::loss_weights each_micro_batch(const batch_view& b, const step_settings& settings, Work&& work) {
        if (b.sequences != 0 || ranks_.size() == 1)
            check(b, shape_.batch.length, model_.of.num_nextn_predict_layers, model_.of.vocab_size,
                  model_.of.max_position_embeddings);
        count(b);
        const models::loss_weights weights = weigh(settings);
        for (integer first = 0; first < b.sequences; first += shape_.batch.sequences) work(load(b, first), weights);
        return weights;
    }

  private:
    /// Lists a storage's parts. Once, at the start: what walks the model's types is code that every visitor pays for.
    void add_parts(T* data, const nn::storage& facts, const std::string& prefix) {
        const integer at = data - memory_.weights.data;
        const auto same_place = [&](A* flat) {
            return flat == nullptr ? matrix<A>{} : matrix<A>{flat + at, facts.rows, facts.width};
        };
        for (int i = 0; i < static_cast<int>(facts.parts.size()); ++i) {
            const char* name = facts.parts[static_cast<std::size_t>(i)].name;
            if (name == nullptr) break;
            parts_.push_back({.name = prefix + name,
                              .storage = facts,
                              .part = i,
                              .value = {data, facts.rows, facts.width},
                              .master = same_place(memory_.master.data),
                              .gradient = same_place(memory_.gradients.data),
                              .first_moment = same_place(memory_.first_moments.data),
                              .second_moment = same_place(memory_.second_moments.data)});
        }
    }
    /// A struct of numbers of one kind, each summed over all ranks.
    template <class Number, class Sums> [[nodiscard]] Sums sum_over_ranks(const Sums& mine, const char* label) const {
        auto numbers = std::bit_cast<std::array<Number, sizeof(Sums) / sizeof(Number)>>(mine);
        ranks_.run(comm::all_reduce(numbers.data(), static_cast<integer>(numbers.size())).from(label));
        return std::bit_cast<Sums>(numbers);
    }
    void start(matrix<T> values, matrix<A> masters, nn::initial how, random_stream source) {
        const double range = model_.of.initializer_range;
        constexpr integer piece = 8192;
        queue_.enqueue(pieces(values.size(), piece), [=](integer task, int) {
            for (integer i = task * piece; i < std::min(values.size(), (task + 1) * piece); ++i) {
                const double drawn = how == nn::initial::normal ? range * source.normal(static_cast<std::uint64_t>(i))
                                     : how == nn::initial::one  ? 1.0
                                                                : 0.0;
                const auto number = static_cast<A>(drawn);
                values.data[i] = static_cast<T>(number);
                if (masters.data != nullptr) masters.data[i] = number;
            }
        });
    }

    /// Whether position i of a sequence has a target for depth k, and which.
    static std::int32_t target_of(const batch_view& b, integer row, integer i, integer k) {
        const integer at = row * b.length + i;
        if (k == 0) return b.targets[at];
        if (b.starts != nullptr && b.starts[at] != b.starts[at + k]) return ignored;  // another document
        return b.targets[at + k];
    }
    /// Counts what losses are divided by, over the batch of all ranks.
    void count(const batch_view& b) {
        counts_ = {.sequences = b.sequences, .tokens = b.sequences * b.length};
        for (integer k = 0; k <= model_.of.num_nextn_predict_layers; ++k) {
            integer& count = counts_.targets[static_cast<std::size_t>(k)];
            for (integer row = 0; row < b.sequences; ++row)
                for (integer i = 0; i < b.length - k; ++i) count += target_of(b, row, i, k) != ignored ? 1 : 0;
        }
        counts_ = sum_over_ranks<integer>(counts_, "counts of targets");
    }
    [[nodiscard]] models::loss_weights weigh(const step_settings& settings) const {
        const auto over = [](double weight, integer count) {
            return count > 0 ? weight / static_cast<double>(count) : 0.0;
        };
        models::loss_weights w;
        w.token = over(1, counts_.targets[0]);
        w.z = settings.z_loss * w.token;
        w.balance = over(settings.balance_alpha, counts_.sequences);
        const integer depths = model_.of.num_nextn_predict_layers;
        for (integer k = 0; k < depths; ++k)
            w.mtp[static_cast<std::size_t>(k)] = over(settings.mtp_lambda / static_cast<double>(depths),
                                                      counts_.targets[static_cast<std::size_t>(k + 1)]);
        return w;
    }
    /// Copies sequences [first, ...) into the arena and carves what depends on their number and length.
    nn::micro_batch<A> load(const batch_view& b, integer first) {
        const nn::extents shape{std::min(shape_.batch.sequences, b.sequences - first), b.length};
        if (shape.sequences != now_.sequences || shape.length != now_.length) {
            arena memory{block_.data(), block_.size()};
            memory.rewind(memory_.activations_at);
            planning::carve_activations(model_, memory, shape, shape_.trains, &memory_);
            now_ = shape;
        }
        for (integer k = 0; k <= model_.of.num_nextn_predict_layers; ++k) {
            models::depth_inputs& in = memory_.inputs[static_cast<std::size_t>(k)];
            for (integer row = 0, to = 0; row < shape.sequences; ++row)
                for (integer i = 0; i < b.length - k; ++i, ++to) {
                    const integer from = (first + row) * b.length + i;
                    in.ids[to] = b.tokens[from + k];
                    in.targets[to] = target_of(b, first + row, i, k);
                    in.positions[to] = b.positions != nullptr ? b.positions[from] : static_cast<std::int32_t>(i);
                    in.starts[to] = b.starts != nullptr ? b.starts[from] : 0;
                }
        }
        return {.shape = shape,
                .positions = memory_.inputs[0].positions,
                .starts = memory_.inputs[0].starts,
                .cosines = memory_.cosines,
                .sines = memory_.sines};
    }
    [[nodiscard]] step_result report(const models::loss_weights& weights, models::loss_terms terms) const {
        terms = sum_over_ranks<double>(terms, "losses");
        step_result r;
        r.cross_entropy = weights.token * terms.main.cross_entropy;
        r.z_loss = weights.z * terms.main.z;
        r.balance_loss = terms.balance;
        for (std::size_t k = 0; k < weights.mtp.size(); ++k) r.mtp_loss += weights.mtp[k] * terms.mtp[k].cross_entropy;
        r.loss = r.cross_entropy + r.z_loss + r.balance_loss + r.mtp_loss;
        r.tokens = counts_.tokens;
        r.targets = counts_.targets[0];
        r.step = memory_.state->step;
        return r;
    }
    /// call(bias, load) for every router; bias is empty where the family has none.
    template <class Call> void each_router(Call&& call) {
        const auto visit = [&](auto& buffers) {
            if constexpr (requires { buffers.load; }) call(buffers.bias, buffers.load);
        };
        model_.each_segment([&](const auto&, auto kind) {
            for (auto& buffers : std::get<kind()>(memory_.buffers.blocks)) visit(buffers);
        });
        for (auto& buffers : memory_.buffers.mtp) visit(buffers);
    }
    void clear_loads() {
        each_router([&](auto&, auto& load) { ops::fill_zero(queue_, load.data, load.size()); });
    }
    void update_router_biases(double speed) {
        each_router([&](auto& bias, auto& load) {
            if (!bias.empty()) ops::bias_update(queue_, bias.data, load.data, bias.width, speed);
        });
    }

    /// Of the batch of all ranks: numbers of one kind, one after another, which are reduced together.
    struct batch_counts {
        integer sequences = 0, tokens = 0;
        std::array<integer, models::max_prediction_depths + 1> targets{};  // that count, by depth of prediction
    };

    comm::link ranks_;
    Transformer model_;
    planning::rank_shape shape_;
    optim::adamw_facts adamw_;
    host::memory block_;
    host::workers workers_;
    host::queue queue_;
    planning::rank_memory<Transformer> memory_;
    nn::extents now_;
    batch_counts counts_;
    std::vector<nn::storage> storages_;
    std::vector<parameter> parts_;  // of all storages, in the order of their global index
};

}  // namespace fathom::train
