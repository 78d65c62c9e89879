// A run: an engine with the settings, the step count and the place in the data that together make the next step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fathom/comm/world.hpp>
#include <fathom/data/batch.hpp>
#include <fathom/data/corpus.hpp>
#include <fathom/data/loader.hpp>
#include <fathom/optim/words.hpp>
#include <fathom/recipe/plan.hpp>
#include <fathom/train/check_health.hpp>
#include <fathom/train/diagnose.hpp>
#include <fathom/train/engine.hpp>
#include <fathom/train/settings.hpp>
#include <memory>
#include <optional>
#include <string>
#include <thread>

namespace fathom {

/// What a step or an evaluation saw; see train::step_result.
using train::step_result;

/// One line about a step, for people.
inline std::string text_of_result(const step_result& r) {
    char line[160];
    std::snprintf(line, sizeof line, "step %lld  loss %.4f  gradient norm %.3f  learning rate %.3g",
                  static_cast<long long>(r.step), r.loss, r.gradient_norm, r.learning_rate);
    return line;
}

/// The numbers of a recipe that a run needs while it runs.
struct run_facts {
    nn::extents batch;
    optim::decay decay;
    models::model_config config;
    planning::plan plan;
    integer neighbours = 1;  // ranks that share this machine
};

// What a program calls at several places is kept out of line here: it is compiled once, and calls cost nothing beside a
// step.

/// A training run over one type of transformer. Not a template over recipes: `start` fills in what a recipe fixes.
template <class Transformer> class run {
  public:
    using engine_type = train::engine<Transformer>;

    /// `bytes` as the engine takes them.
    [[gnu::noinline]] run(const Transformer& model, const run_facts& facts, const planning::rank_shape& shape,
                          integer bytes, const run_settings& settings, const comm::link& ranks = {},
                          const train::layout_facts& layout = {})
        : settings_(settings),
          facts_(facts),
          schedule_{.peak = settings.learning_rate,
                    .warmup_steps = settings.warmup_steps,
                    .training_steps = settings.training_steps,
                    .shape = optim::stretches_of(settings.schedule)},
          engine_(model, shape, bytes,
                  {settings.beta1, settings.beta2, settings.epsilon, settings.weight_decay, facts.decay}, ranks,
                  layout) {
        check(settings_);
        // What a recipe's plan does not know: this rank's share.
        if (Transformer::split || engine_.shape().shards.zero > 0)
            facts_.plan = planning::lower(model, engine_.shape(), engine_.model());
        schedule_.check();
        if (settings_.health_check)  // the arena is not touched yet
            train::check_health(engine_.ranks(), engine_.queue(), engine_.arena_bytes(), facts_.neighbours);
        engine_.initialise(settings_.seed);
    }

    /// One step on a batch of any number of sequences, or on this rank's part of it; the learning rate is the
    /// schedule's. Errors: bad ids or shapes; a loss or gradient norm that is not finite: names the place, saves the
    /// batch, and nothing has been moved. Experts may be recorded or follow a record: see train::routing.
    step_result step(const batch& b, const train::routing& routes = {}) { return step(view(b), routes); }
    [[gnu::noinline]] step_result step(const train::batch_view& b, const train::routing& routes = {}) {
        train::step_settings now = settings_of_step();
        now.routes = routes;
        const step_result seen = engine_.step(b, now);
        train::require_finite(engine_, b, now, seen, bad_batch_);
        return seen;
    }
    /// The mean losses over a batch, or over the parts of all ranks.
    step_result evaluate(const batch& b) { return engine_.evaluate(view(b), settings_of_step()); }

    /// Whether the step just done is a multiple of n.
    [[nodiscard]] bool every(integer n) const { return steps_done() % n == 0; }
    [[nodiscard]] std::int64_t steps_done() const { return engine_.steps_done(); }
    [[nodiscard]] bool finished() const { return steps_done() >= settings_.training_steps; }
    /// Of one replica.
    [[nodiscard]] integer sequences_per_step() const { return facts_.batch.sequences * settings_.micro_batches; }
    [[nodiscard]] const comm::link& ranks() const { return engine_.ranks(); }
    /// The ranks that read other parts of each batch; those of one replica read the same.
    [[nodiscard]] const comm::link& replicas() const { return engine_.links().replica; }

    /// call(parameter_view, part) for every parameter: name, shape, value, gradient.
    template <class Call> void each_parameter(Call&& call) { engine_.each_part(call); }

    [[nodiscard]] const run_settings& settings() const { return settings_; }
    [[nodiscard]] const run_facts& facts() const { return facts_; }
    /// Where a batch is saved whose loss or gradient norm is not finite.
    void save_bad_batch_as(const std::string& path) { bad_batch_ = path; }
    [[nodiscard]] engine_type& engine() { return engine_; }
    /// Where in the data the next batch begins: part of the run's state, so that a checkpoint holds it.
    [[nodiscard]] loader::state& data_position() { return data_position_; }

    [[nodiscard]] train::step_settings settings_of_step() const {
        return {.learning_rate = schedule_.at(engine_.steps_done()),
                .clip = settings_.clip,
                .mtp_lambda = settings_.mtp_lambda,
                .balance_alpha = settings_.balance_alpha,
                .z_loss = settings_.z_loss,
                .bias_update_speed = settings_.bias_update_speed};
    }
    static train::batch_view view(const batch& b) {
        return {b.sequences, b.length, b.tokens.data(), b.labels.data(), b.positions.data(), b.starts.data()};
    }

  private:
    run_settings settings_;
    run_facts facts_;
    optim::learning_rate_schedule schedule_;
    engine_type engine_;
    loader::state data_position_;
    std::string bad_batch_ = "bad_batch.safetensors";
};

/// The training text of a run: a corpus read in the order of the run's seed, from the place that the run is at. Every
/// replica reads its part of each batch.
template <class Run> class training_text {
  public:
    /// Errors: a corpus that does not open, or whose ids the model does not have.
    training_text(Run& of, const std::string& path)
        : run_(&of),
          corpus_(std::make_unique<corpus>(corpus::open(path))),
          loader_(*corpus_, {.length = of.facts().batch.length,
                             .seed = of.settings().seed,
                             .across_documents = of.settings().across_documents}) {
        if (corpus_->vocab_size() > of.facts().config.vocab_size)
            fail(path, ": found a vocabulary of ", corpus_->vocab_size(), " ids, expected at most the model's ",
                 of.facts().config.vocab_size);
    }

    /// The batch of the next step, or nothing when the run has done its steps.
    [[nodiscard, gnu::noinline]] std::optional<batch> next() {
        if (run_->finished()) return std::nullopt;
        const integer each = run_->sequences_per_step();
        loader_.go_to(run_->data_position());
        batch made = loader_.peek(run_->replicas().rank() * each, each);
        loader_.advance(run_->replicas().size() * each);
        run_->data_position() = loader_.where();
        return made;
    }
    /// The mean losses over all held-out documents, weighted by targets. All ranks call it together.
    [[nodiscard, gnu::noinline]] step_result evaluate() {
        step_result all;
        const integer total = loader_.held_out_sequences(), some = run_->facts().batch.sequences;
        for (integer first = 0; first < total; first += run_->replicas().size() * some) {
            const integer mine = std::min(first + run_->replicas().rank() * some, total);
            batch here = loader_.held_out(mine, std::min(some, total - mine));
            integer idle = 0;
            if (run_->engine().meets_replicas()) {
                idle = std::max<integer>(0, run_->replicas().size() - pieces(total - first, some));
                if (here.sequences == 0) {  // takes part, though nothing of it counts
                    here = loader_.held_out(0, 1);
                    std::fill(here.labels.begin(), here.labels.end(), train::ignored);
                }
            }
            const step_result part = run_->evaluate(here);
            all.cross_entropy += part.cross_entropy * static_cast<double>(part.targets);
            all.targets += part.targets;
            all.tokens += part.tokens - idle * run_->facts().batch.length;
        }
        if (all.targets > 0) all.cross_entropy /= static_cast<double>(all.targets);
        all.loss = all.cross_entropy;
        all.step = run_->steps_done();
        return all;
    }
    [[nodiscard]] const corpus& source() const { return *corpus_; }
    [[nodiscard]] const loader& order() const { return loader_; }

  private:
    Run* run_;
    std::unique_ptr<corpus> corpus_;
    loader loader_;
};

template <class Run> training_text(Run&, const std::string&) -> training_text<Run>;

/// Starts a run of a recipe: takes its memory, at most bytes_per_rank<Recipe> for that many replicas, micro-batches and
/// workers, looks at every rank's health, and sets its parameters up. Errors: a world that the recipe's mesh is not
/// for; those of train::check_health.
template <class Recipe> [[gnu::noinline]] auto start(world& all, const run_settings& settings) {
    constexpr auto model = planning::transformer_of<Recipe>();
    using mesh = typename Recipe::layout;
    all.require_ranks<mesh>();
    constexpr integer each = degrees_of<mesh>().ranks();
    const integer replicas = Recipe::dp_degree == any ? all.size() / each : Recipe::dp_degree;
    const int cores = static_cast<int>(std::thread::hardware_concurrency() / all.neighbours());
    const int workers = settings.workers > 0 ? settings.workers : std::max(1, cores);
    train::layout_facts layout{.mesh = degrees_of<mesh>(replicas),
                               .zero = Recipe::zero_stage,
                               .shard_within = Recipe::shard_ranks,
                               .gradient_predivide = settings.gradient_predivide,
                               .micro_batches = settings.micro_batches};
    planning::plan plan;
    integer bytes = 0;
    if constexpr (Recipe::split) {
        layout.schedule = &schedule::built::of<typename Recipe::pipeline_schedule>;
        layout.layers = &Recipe::layers_of_stage;
    } else {
        plan = planning::plan_of<Recipe>(workers);
        if (Recipe::zero_stage == 0) bytes = planning::bytes_of<Recipe>(workers);
    }
    return run<std::remove_const_t<decltype(model)>>{
        model,
        {Recipe::batch, Recipe::decay, Recipe::model::config(), plan, all.neighbours()},
        {.batch = Recipe::batch, .workers = workers},
        bytes,
        settings,
        all.ranks(),
        layout};
}

}  // namespace fathom
