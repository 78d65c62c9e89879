// Runs a small model in a layout and on one rank, and says how far apart they are.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fathom/comm.hpp>
#include <fathom/core/random_stream.hpp>
#include <fathom/models/families.hpp>
#include <fathom/models/share.hpp>
#include <fathom/train/pretrained.hpp>
#include <map>
#include <mutex>
#include <string>
#include <vector>
#include "engines.hpp"

namespace fathom::test {

inline constexpr integer layout_length = 16, layout_vocabulary = 40;

/// What of a run is not its layout.
struct run_factors {
    models::model_config config = [] {
        models::model_config c;
        c.type = models::family::deepseek_v3;
        c.vocab_size = layout_vocabulary, c.hidden_size = 24, c.num_hidden_layers = 4, c.first_k_dense_replace = 1;
        c.num_attention_heads = 8, c.q_lora_rank = 12, c.kv_lora_rank = 8;
        c.qk_nope_head_dim = 6, c.qk_rope_head_dim = 4, c.v_head_dim = 5;
        c.intermediate_size = 16, c.moe_intermediate_size = 8;
        c.n_routed_experts = 8, c.num_experts_per_tok = 3, c.n_shared_experts = 1;
        c.routed_scaling_factor = 2.5, c.norm_topk_prob = true;
        c.num_nextn_predict_layers = 1, c.max_position_embeddings = 32, c.initializer_range = 0.1;
        return c;
    }();
    nn::recomputation again{};
    models::share_choices choices{};  // of split models
    integer sequences = 16;           // of a step, over all replicas
    integer steps = 5;
    bool packed = true, ragged = true;  // documents in a sequence; labels that are ignored
    double balance = 0.05;
    enum class routing { as_learned, one_expert_idle, few_experts } load = routing::as_learned;
};

/// A batch drawn by seed.
struct layout_batch {
    integer sequences;
    std::vector<std::int32_t> tokens, targets, starts;

    layout_batch(const run_factors& f, std::uint64_t seed) : sequences(f.sequences) {
        const random_stream drawn{seed, 7};
        for (integer row = 0; row < sequences; ++row)
            for (integer i = 0; i < layout_length; ++i) {
                const auto at = static_cast<std::uint64_t>(row * layout_length + i);
                const auto id = [&](std::uint64_t n) {
                    return static_cast<std::int32_t>(drawn.uniform(n) * static_cast<double>(layout_vocabulary));
                };
                tokens.push_back(id(2 * at));
                // The later a sequence stands, the fewer of its labels count: means over parts are not the whole mean.
                const double counting = 1.2 - static_cast<double>(row) / static_cast<double>(sequences);
                targets.push_back(!f.ragged || drawn.uniform(100'000 + at) < counting ? id(2 * at + 1)
                                                                                      : train::ignored);
                starts.push_back(static_cast<std::int32_t>(!f.packed || i < 5 + row % 3 ? 0 : 5 + row % 3));
            }
    }
    [[nodiscard]] train::batch_view part(integer first, integer count) const {
        const integer at = first * layout_length;
        return {count, layout_length, tokens.data() + at, targets.data() + at, nullptr, starts.data() + at};
    }
};

/// Tensors by name, put together from the slices of all ranks.
class gathered {
  public:
    void put(const std::string& name, const nn::storage& facts, const nn::part& part, integer row, double value,
             integer column) {
        const integer width = facts.whole_width();
        auto& tensor = tensors_[name];
        tensor.resize(static_cast<std::size_t>(part.whole_rows() * width), std::nan(""));
        double& to = tensor[static_cast<std::size_t>((part.row + row) * width + facts.column + column)];
        if (!std::isnan(to) && to != value) ++unlike_;
        to = value;
    }
    [[nodiscard]] const auto& tensors() const { return tensors_; }
    /// Numbers of which two ranks have other bits.
    [[nodiscard]] integer unlike() const { return unlike_; }

  private:
    std::map<std::string, std::vector<double>> tensors_;
    integer unlike_ = 0;
};

/// What a run saw.
struct history {
    std::vector<double> numbers;  // of all steps: losses, norms, counts
    gathered gradients, weights;  // of the first step, where they are whole; after the last
    std::map<std::string, std::vector<double>> biases;
    integer most_bytes = 0;  // of a rank's arena
};

/// Under ZeRO-3 ranks meet in every block: none may have the lock between them.
template <class Engine> void gather(Engine& engine, gathered& to, std::mutex& mutex, auto member) {
    engine.each_part([&](const auto& p, const nn::part& part) {
        const std::lock_guard lock{mutex};
        for (integer n = 0; n < part.count; ++n)
            for (integer r = 0; r < part.rows; ++r)
                for (integer c = 0; c < p.storage.width; ++c)
                    to.put(train::detail::numbered_name(p.name, part.number + n), p.storage, part, r,
                           static_cast<double>((p.*member)(part.first + n * part.step + r, c)), c);
    });
}

/// All steps of one rank; `replica` of `replicas` is its part of each batch.
template <class Engine>
void take_steps(Engine& engine, const run_factors& f, integer replica, integer replicas, history& seen,
                std::mutex& mutex, bool gradients_whole) {
    using view = typename Engine::parameter;
    const train::step_settings settings{
        .learning_rate = 3e-3, .clip = 0.5, .balance_alpha = f.balance, .z_loss = 1e-3, .bias_update_speed = 0.01};
    engine.initialise(1);
    engine.each_router_bias([&](const std::string&, const auto& bias) {
        for (integer e = 0; e < bias.width; ++e) {
            if (f.load == run_factors::routing::one_expert_idle && e == 5) bias.data[e] = -100;
            if (f.load == run_factors::routing::few_experts && e < f.config.num_experts_per_tok) bias.data[e] = 100;
        }
    });
    for (integer step = 0; step < f.steps; ++step) {
        const layout_batch batch{f, static_cast<std::uint64_t>(step)};
        const integer each = f.sequences / replicas;
        const train::step_result r = engine.step(batch.part(replica * each, each), settings);
        if (engine.ranks().rank() == 0)
            for (const double x : {r.loss, r.cross_entropy, r.mtp_loss, r.balance_loss, r.z_loss, r.gradient_norm,
                                   static_cast<double>(r.tokens), static_cast<double>(r.targets)})
                seen.numbers.push_back(x);
        if (step == 0 && gradients_whole) gather(engine, seen.gradients, mutex, &view::gradient);
    }
    gather(engine, seen.weights, mutex, &view::value);
    const std::lock_guard lock{mutex};
    engine.each_router_bias([&](const std::string& name, const auto& bias) {
        seen.biases[name].assign(bias.data, bias.data + bias.size());
    });
    seen.most_bytes = std::max(seen.most_bytes, engine.arena_bytes());
}

/// Family is one of models::*_family, T the format of weights.
template <class Family, class T> struct layout_runs {
    static constexpr nn::extents shape{2, layout_length};
    using whole_engine = train::engine<decltype(Family::template transformer<T>(models::model_config{}))>;
    using split_engine = train::engine<decltype(Family::template transformer<T, true>(models::model_config{}))>;

    static history alone(const run_factors& f) {
        history seen;
        std::mutex mutex;
        const auto model = Family::template transformer<T>(f.config, f.again);
        whole_engine engine{model, {.batch = shape, .workers = 1}, 0, optim::adamw_facts{}};
        take_steps(engine, f, 0, 1, seen, mutex, true);
        return seen;
    }
    /// `wrap(communicator)` may give what stands before it.
    template <class Wrap> static history on(const train::layout_facts& layout, const run_factors& f, const Wrap& wrap) {
        history seen;
        std::mutex mutex;
        const auto model = models::chosen(Family::template transformer<T, true>(f.config, f.again), f.choices);
        comm::threads::run(layout.mesh.ranks(), [&](auto& mine) {
            auto ranks = wrap(mine);
            split_engine engine{model, {.batch = shape, .workers = 1}, 0, optim::adamw_facts{}, comm::link{*ranks},
                                layout};
            take_steps(engine, f, engine.links().at.dp, layout.mesh.dp, seen, mutex, layout.zero == 0);
        });
        return seen;
    }
    static history on(const train::layout_facts& layout, const run_factors& f) {
        return on(layout, f, [](auto& mine) { return &mine; });
    }
    /// Data parallel, every rank with a whole model.
    static history on_whole(const train::layout_facts& layout, const run_factors& f) {
        history seen;
        std::mutex mutex;
        const auto model = Family::template transformer<T>(f.config, f.again);
        comm::threads::run(layout.mesh.dp, [&](auto& mine) {
            whole_engine engine{model, {.batch = shape, .workers = 1}, 0, optim::adamw_facts{}, comm::link{mine},
                                layout};
            take_steps(engine, f, engine.links().at.dp, layout.mesh.dp, seen, mutex, layout.zero == 0);
        });
        return seen;
    }
};

/// Blocks spread over stages; the last one has the head and the modules of multi-token prediction, and its share.
template <integer Count, integer Blocks, integer Depths> layer_range spread_evenly(integer stage) {
    const integer rest = Blocks + 1, base = rest / Count, more = rest % Count;
    const integer first = stage * base + std::min(stage, more);
    return {first, base + (stage < more ? 1 : 0) + (stage == Count - 1 ? 1 + Depths : 0)};
}
template <integer Blocks, integer Depths> models::layers_of_stage spread_over(integer count) {
    switch (count) {
        case 1:
            return &spread_evenly<1, Blocks, Depths>;
        case 2:
            return &spread_evenly<2, Blocks, Depths>;
        case 3:
            return &spread_evenly<3, Blocks, Depths>;
        case 4:
            return &spread_evenly<4, Blocks, Depths>;
        default:
            return &spread_evenly<8, Blocks, Depths>;
    }
}
/// Stages of a model of 4 or 7 blocks and at most two modules of multi-token prediction.
inline models::layers_of_stage stages_for(integer count, const models::model_config& c) {
    const integer depths = c.num_nextn_predict_layers;
    if (c.num_hidden_layers == 4)
        return depths == 0   ? spread_over<4, 0>(count)
               : depths == 1 ? spread_over<4, 1>(count)
                             : spread_over<4, 2>(count);
    return depths == 0 ? spread_over<7, 0>(count) : depths == 1 ? spread_over<7, 1>(count) : spread_over<7, 2>(count);
}

/// The largest max|a - b| / max|b| over tensors, and where.
struct difference {
    double most = 0;
    std::string where;

    void add(const std::string& name, const std::vector<double>& a, const std::vector<double>& b) {
        double apart = 0, largest = 0;
        bool sound = a.size() == b.size();
        for (std::size_t i = 0; sound && i < a.size(); ++i) {
            sound = !std::isnan(a[i]);
            apart = std::max(apart, std::abs(a[i] - b[i]));
            largest = std::max(largest, std::abs(b[i]));
        }
        const double ratio = !sound ? 1e9 : largest == 0 ? (apart == 0 ? 0 : 1e9) : apart / largest;
        if (ratio > most) most = ratio, where = name;
    }
    void add(const std::map<std::string, std::vector<double>>& a, const std::map<std::string, std::vector<double>>& b) {
        if (a.size() != b.size()) most = 1e9, where = "number of tensors";
        for (const auto& [name, numbers] : b)
            add(name, a.count(name) > 0 ? a.at(name) : std::vector<double>{}, numbers);
    }
};

inline std::string text_of_layout(const train::layout_facts& l) {
    return text_of("dp ", l.mesh.dp, " pp ", l.mesh.pp, " tp ", l.mesh.tp, " cp ", l.mesh.cp, " ep ", l.mesh.ep,
                   " etp ", l.mesh.etp, " zero ", l.zero);
}

/// Losses, norms, gradients, weights and biases are equal to a bound, and those of replicas in every bit.
inline void compare(const history& seen, const history& expected, bool gradients, double bound = 1e-10) {
    difference numbers, gradient, weights, biases;
    numbers.add("losses and norms", seen.numbers, expected.numbers);
    CHECK_MESSAGE(numbers.most <= bound, numbers.where, " differ by ", numbers.most);
    if (gradients) gradient.add(seen.gradients.tensors(), expected.gradients.tensors());
    CHECK_MESSAGE(gradient.most <= bound, "gradient of ", gradient.where, " differs by ", gradient.most);
    weights.add(seen.weights.tensors(), expected.weights.tensors());
    CHECK_MESSAGE(weights.most <= bound, "weight ", weights.where, " differs by ", weights.most);
    biases.add(seen.biases, expected.biases);
    CHECK_MESSAGE(biases.most <= bound, "bias ", biases.where, " differs by ", biases.most);
    CHECK_MESSAGE(seen.gradients.unlike() == 0, "gradients of replicas differ");
    CHECK_MESSAGE(seen.weights.unlike() == 0, "weights of replicas differ");
}

}  // namespace fathom::test
