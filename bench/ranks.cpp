// One training step on several ranks that are threads, timed: what the peer comparison holds against one rank with as
// many workers, and against PyTorch's processes. Prints one line of JSON.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fathom/comm/threads/run.hpp>
#include <fathom/core/seconds_now.hpp>
#include <fathom/train/engine.hpp>
#include <string>
#include <vector>

#include "peer_models.hpp"

namespace fathom::bench {

struct options {
    std::string config = "S", layout = "dp";
    integer ranks = 2, workers = 1;
    int steps = 10, warmup = 3;
};

/// The recipe's layers over two stages.
template <class Model>
using in_two_stages = training<Model, mesh<pp<2>>, precision<weights<float>>, sequence_length<64>, micro_batch<1>>;

struct timing {
    std::vector<double> seconds;
    train::step_result first, last;
    integer bytes = 0;
};

/// Steps on this rank's part of the batches that bench/step has: four of random tokens in turn, labels are the tokens.
template <class Engine>
timing steps_of(Engine& engine, const options& chosen, nn::extents batch, integer replica, integer replicas) {
    const integer each = batch.sequences / replicas, length = batch.length;
    const auto begin = static_cast<std::size_t>(replica * each * length);
    const auto vocabulary = static_cast<double>(engine.model().of.vocab_size);
    std::vector<std::int32_t> ids[4], targets[4];
    for (std::size_t b = 0; b < 4; ++b) {
        const random_stream source{1, b};
        for (integer i = 0; i < batch.tokens(); ++i)
            ids[b].push_back(static_cast<std::int32_t>(source.uniform(static_cast<std::uint64_t>(i)) * vocabulary));
        for (integer i = 0; i < batch.tokens(); ++i)
            targets[b].push_back((i + 1) % length == 0 ? train::ignored : ids[b][static_cast<std::size_t>(i + 1)]);
    }
    engine.initialise(1);
    const train::step_settings settings{.learning_rate = 3e-4, .clip = 1, .balance_alpha = 0, .bias_update_speed = 0};
    timing seen;
    for (int s = 0; s < chosen.warmup + chosen.steps; ++s) {
        const double before = seconds_now();
        seen.last = engine.step({each, length, ids[s % 4].data() + begin, targets[s % 4].data() + begin}, settings);
        if (s >= chosen.warmup) seen.seconds.push_back(seconds_now() - before);
        if (s == 0) seen.first = seen.last;
    }
    seen.bytes = engine.arena_bytes();
    return seen;
}

/// A rank's part in a layout: whole models beside each other, or one model over all ranks.
template <class Recipe> timing on_rank(const options& chosen, const comm::link& ranks) {
    using family = typename Recipe::model::family;
    const auto config = Recipe::model::config();
    const nn::extents batch = Recipe::batch;
    const optim::adamw_facts adamw{.group = optim::decay::all};
    const integer n = chosen.ranks;
    if (chosen.layout == "dp") {
        if (batch.sequences % n != 0) fail("--ranks ", n, ": expected a divisor of ", batch.sequences, " sequences");
        const nn::extents part{batch.sequences / n, batch.length};
        train::engine engine{family::template transformer<float>(config, Recipe::again),
                             {.batch = part, .workers = chosen.workers},
                             0,
                             adamw,
                             ranks,
                             {.mesh = {.dp = n}}};
        return steps_of(engine, chosen, batch, ranks.rank(), n);
    }
    const auto model = family::template transformer<float, true>(config, Recipe::again);
    train::layout_facts layout{.schedule = &schedule::built::of<schedule::one_f_one_b>};
    nn::extents part = batch;
    if (chosen.layout == "tp") {
        layout.mesh = {.tp = n};
    } else if (chosen.layout == "pp" && n == 2) {
        layout.mesh = {.pp = 2};
        layout.layers = &in_two_stages<typename Recipe::model>::layers_of_stage;
        part.sequences = 1;  // as many micro-batches as there can be
        layout.micro_batches = batch.sequences;
    } else {
        fail("--layout ", chosen.layout, " on ", n, " ranks is not known, expected dp, tp, or pp on 2");
    }
    train::engine engine{model, {.batch = part, .workers = chosen.workers}, 0, adamw, ranks, layout};
    return steps_of(engine, chosen, batch, 0, 1);
}

template <class Recipe> int run(const options& chosen) {
    timing seen;
    if (chosen.ranks == 1)
        seen = on_rank<Recipe>(chosen, {});
    else
        comm::threads::run(chosen.ranks, [&](auto& ranks) {
            timing mine = on_rank<Recipe>(chosen, comm::link{ranks});
            if (ranks.rank() == 0) seen = std::move(mine);
        });
    std::sort(seen.seconds.begin(), seen.seconds.end());
    const double best = seen.seconds.front(), median = seen.seconds[seen.seconds.size() / 2];
    const auto tokens = static_cast<double>(Recipe::batch.tokens());
    std::printf(
        "{\"config\": \"%s\", \"layout\": \"%s\", \"ranks\": %lld, \"threads\": %lld, \"tokens\": %.0f, \"steps\": "
        "%zu, "
        "\"min_s\": %.5f, \"med_s\": %.5f, \"tok_s_best\": %.1f, \"tok_s_med\": %.1f, \"arena_mib\": %.1f, "
        "\"parameters\": %lld, \"first_loss\": %.6f, \"last_loss\": %.6f}\n",
        chosen.config.c_str(), chosen.layout.c_str(), static_cast<long long>(chosen.ranks),
        static_cast<long long>(chosen.ranks * chosen.workers), tokens, seen.seconds.size(), best, median, tokens / best,
        tokens / median, static_cast<double>(seen.bytes) / 1048576,
        static_cast<long long>(planning::plan_of_one<Recipe>.parameters), seen.first.loss, seen.last.loss);
    return 0;
}

}  // namespace fathom::bench

int main(int argc, char** argv) try {
    fathom::bench::options chosen;
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string name = argv[i], value = argv[i + 1];
        if (name == "--config")
            chosen.config = value;
        else if (name == "--layout")
            chosen.layout = value;
        else if (name == "--ranks")
            chosen.ranks = std::max(1, std::atoi(value.c_str()));
        else if (name == "--workers")
            chosen.workers = std::max(1, std::atoi(value.c_str()));
        else if (name == "--steps")
            chosen.steps = std::max(1, std::atoi(value.c_str()));
        else if (name == "--warmup")
            chosen.warmup = std::max(0, std::atoi(value.c_str()));
        else
            fathom::fail(name,
                         " is not known, expected --config S|M, --layout dp|pp|tp, --ranks, --workers, --steps or ",
                         "--warmup");
    }
    if (chosen.config == "S") return fathom::bench::run<fathom::bench::S<float>>(chosen);
    if (chosen.config == "M") return fathom::bench::run<fathom::bench::M<float>>(chosen);
    fathom::fail("--config ", chosen.config, " is not known, expected S or M");
} catch (const std::exception& problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return 1;
}
