// One training step of a configuration, timed: the half of the peer comparison that is ours. Prints one line of JSON.
#include <getopt.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fathom/ops/product/peak.hpp>
#include <fathom/train/engine.hpp>
#include <string>
#include <vector>

#include "peer_models.hpp"

namespace fathom::bench {

struct options {
    std::string config = "S", dtype = "fp32";
    int threads = 2, steps = 10, warmup = 3;
    bool peak = true;
};

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double peak_rss_mib() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    return static_cast<double>(used.ru_maxrss) / 1024;
}

template <class Recipe> int run(const options& chosen) {
    constexpr auto model = planning::transformer_of<Recipe>();
    const planning::rank_shape shape{.batch = Recipe::batch, .workers = chosen.threads};
    const integer bytes = planning::bytes_of<Recipe>(chosen.threads);
    train::engine engine{model, shape, bytes, {.group = optim::decay::all}};
    engine.initialise(1);

    // As the peer: four batches of random tokens in turn, labels are the tokens.
    const integer tokens = Recipe::batch.tokens(), length = Recipe::batch.length;
    std::vector<std::int32_t> ids[4], targets[4];
    for (int b = 0; b < 4; ++b) {
        const random_stream source{1, static_cast<std::uint64_t>(b)};
        for (integer i = 0; i < tokens; ++i)
            ids[b].push_back(static_cast<std::int32_t>(source.uniform(static_cast<std::uint64_t>(i)) *
                                                       static_cast<double>(model.of.vocab_size)));
        for (integer i = 0; i < tokens; ++i)
            targets[b].push_back((i + 1) % length == 0 ? train::ignored : ids[b][static_cast<std::size_t>(i + 1)]);
    }
    // The peer has no balance loss, no bias update and no multi-token prediction.
    const train::step_settings settings{.learning_rate = 3e-4, .clip = 1, .balance_alpha = 0, .bias_update_speed = 0};
    std::vector<double> times;
    train::step_result first, last;
    for (int s = 0; s < chosen.warmup + chosen.steps; ++s) {
        const double before = seconds();
        last = engine.step({Recipe::batch.sequences, length, ids[s % 4].data(), targets[s % 4].data()}, settings);
        if (s >= chosen.warmup) times.push_back(seconds() - before);
        if (s == 0) first = last;
    }
    const double rss = peak_rss_mib();
    std::sort(times.begin(), times.end());
    const double best = times.front(), median = times[times.size() / 2], flops = model.flops(Recipe::batch);
    const double peak = chosen.peak ? ops::product_peak(engine.queue()) : 0;
    std::printf(
        "{\"config\": \"%s\", \"dtype\": \"%s\", \"threads\": %d, \"tokens\": %lld, \"steps\": %zu, \"min_s\": %.5f, "
        "\"med_s\": %.5f, "
        "\"tok_s_best\": %.1f, \"tok_s_med\": %.1f, \"peak_rss_mib\": %.1f, \"arena_mib\": %.1f, \"parameters\": %lld, "
        "\"sgemm_peak_gflops\": %.1f, \"model_gflops_per_step\": %.2f, \"mfu\": %.4f, \"first_loss\": %.6f, "
        "\"last_loss\": %.6f}\n",
        chosen.config.c_str(), chosen.dtype.c_str(), chosen.threads, static_cast<long long>(tokens), times.size(), best,
        median, static_cast<double>(tokens) / best, static_cast<double>(tokens) / median, rss,
        static_cast<double>(bytes) / 1048576, static_cast<long long>(planning::plan_of_one<Recipe>.parameters),
        peak / 1e9, flops / 1e9, peak > 0 ? flops / median / peak : 0, first.loss, last.loss);
    return 0;
}

template <class Number> int run_config(const options& chosen) {
    if (chosen.config == "S") return run<S<Number>>(chosen);
    if (chosen.config == "M") return run<M<Number>>(chosen);
    if (chosen.config == "L") return run<L<Number>>(chosen);
    if (chosen.config == "T") return run<T<Number>>(chosen);
    fail("--config ", chosen.config, " is not known, expected S, M, L or T");
}

}  // namespace fathom::bench

int main(int argc, char** argv) {
    fathom::bench::options chosen;
    const option known[] = {{"config", required_argument, nullptr, 'c'},
                            {"dtype", required_argument, nullptr, 'd'},
                            {"threads", required_argument, nullptr, 't'},
                            {"steps", required_argument, nullptr, 's'},
                            {"warmup", required_argument, nullptr, 'w'},
                            {"no-peak", no_argument, nullptr, 'n'},
                            {nullptr, 0, nullptr, 0}};
    for (int c; (c = getopt_long(argc, argv, "", known, nullptr)) != -1;) {
        switch (c) {
            case 'c':
                chosen.config = optarg;
                break;
            case 'd':
                chosen.dtype = optarg;
                break;
            case 't':
                chosen.threads = std::atoi(optarg);
                break;
            case 's':
                chosen.steps = std::max(1, std::atoi(optarg));
                break;
            case 'w':
                chosen.warmup = std::max(0, std::atoi(optarg));
                break;
            case 'n':
                chosen.peak = false;
                break;
            default:
                std::fprintf(stderr,
                             "usage: step [--config S|M|L|T] [--dtype fp32|bf16] [--threads N] [--steps N] [--warmup "
                             "N] [--no-peak]\n");
                return 2;
        }
    }
    try {
        if (chosen.dtype == "fp32") return fathom::bench::run_config<float>(chosen);
        if (chosen.dtype == "bf16") return fathom::bench::run_config<fathom::bf16>(chosen);
        fathom::fail("--dtype ", chosen.dtype, " is not known, expected fp32 or bf16");
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "%s\n", problem.what());
        return 1;
    }
}
