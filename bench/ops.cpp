// Every operation of a training step at the sizes of a configuration: time, share of a step, and speed against the
// machine's limit.
#include <getopt.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fathom/ops.hpp>
#include <fathom/ops/product/peak.hpp>
#include <fathom/train/engine.hpp>
#include <string>
#include <vector>

#include "peer_models.hpp"

namespace fathom::bench {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// The best of several runs of `work`, each long enough to be timed.
template <class Work> double best_of(int tries, Work&& work) {
    work();
    double once = 1e30;
    for (int t = 0; t < tries; ++t) {
        const double start = now();
        work();
        once = std::min(once, now() - start);
    }
    return once;
}

/// Bytes a second of reading two arrays and writing a third on all workers, arrays larger than any cache.
double memory_bandwidth(host::queue& queue) {
    constexpr integer count = integer{1} << 25;
    std::vector<float> a(count, 1.0f), b(count, 2.0f), c(count);
    constexpr integer chunk = 1 << 16;
    const double seconds = best_of(5, [&] {
        queue.enqueue(count / chunk, [&](integer task, int) {
            for (integer i = task * chunk; i < (task + 1) * chunk; ++i)
                c[static_cast<std::size_t>(i)] = a[static_cast<std::size_t>(i)] + b[static_cast<std::size_t>(i)];
        });
    });
    return 3.0 * 4 * static_cast<double>(count) / seconds;
}

/// One row: an operation, how often a step calls it, its work and its time.
struct row {
    std::string name;
    double calls, flops, bytes, seconds;
};

struct bench {
    host::queue& queue;
    std::vector<row> rows{};

    template <class Work> void add(const char* name, double calls, double flops, double bytes, Work&& work) {
        rows.push_back({name, calls, flops, bytes, best_of(5, work)});
    }
};

/// Numbers of a matrix that lives as long as the benchmark.
struct numbers {
    std::vector<float> values;
    matrix<float> view;
    numbers(integer rows, integer width)
        : values(static_cast<std::size_t>(rows * width)), view{values.data(), rows, width} {
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.01f * static_cast<float>(i % 101) - 0.5f;
    }
};

template <class Recipe> int run(int threads, const char* json) {
    constexpr model_config c = Recipe::model::config();
    constexpr auto model = planning::transformer_of<Recipe>();
    train::engine engine{model, {.batch = Recipe::batch, .workers = threads}, planning::bytes_of<Recipe>(threads), {}};
    engine.initialise(1);
    host::queue& queue = engine.queue();
    const integer tokens = Recipe::batch.tokens(), length = Recipe::batch.length, h = c.hidden_size;
    const double peak = ops::product_peak(queue), bandwidth = memory_bandwidth(queue);

    std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens)), starts(ids.size()), positions(ids.size());
    for (integer i = 0; i < tokens; ++i) {
        ids[static_cast<std::size_t>(i)] = static_cast<std::int32_t>((i * 7919) % c.vocab_size);
        positions[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i % length);
    }
    const train::batch_view batch{Recipe::batch.sequences, length, ids.data(), ids.data()};
    const double step = best_of(3, [&] { engine.step(batch, {.learning_rate = 1e-5}); });

    bench all{queue};
    const auto product = [&](const char* name, double calls, integer m, integer k, integer n) {
        numbers x{m, k}, w{n, k}, y{m, n}, dw{n, k};
        const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
        const double bytes = 4.0 * static_cast<double>(m * k + n * k + m * n);
        all.add((std::string{name} + ", forward").c_str(), calls, flops, bytes,
                [&] { ops::product(queue, y.view, x.view, w.view); });
        all.add((std::string{name} + ", input gradient").c_str(), calls, flops, bytes,
                [&] { ops::product_input(queue, x.view, y.view, w.view); });
        all.add((std::string{name} + ", weight gradient").c_str(), calls, flops, bytes,
                [&] { ops::product_weight(queue, dw.view, y.view, x.view); });
    };
    const auto layers = static_cast<double>(c.num_hidden_layers);
    const integer qk = c.latent() ? c.qk_nope_head_dim + c.qk_rope_head_dim : c.width_of_head();
    const integer v = c.latent() ? c.v_head_dim : c.width_of_head(), heads = c.num_attention_heads;
    if (c.latent()) {
        product("attention: latents", layers, tokens, h, c.q_lora_rank + c.kv_lora_rank + c.qk_rope_head_dim);
        product("attention: queries", layers, tokens, c.q_lora_rank, heads * qk);
        product("attention: keys and values", layers, tokens, c.kv_lora_rank, heads * (c.qk_nope_head_dim + v));
    } else {
        product("attention: queries, keys and values", layers, tokens, h, (heads + 2 * c.key_value_heads()) * qk);
    }
    product("attention: output", layers, tokens, heads * v, h);
    {
        const integer kv_heads = c.latent() ? heads : c.key_value_heads(),
                      shared_dim = c.latent() ? c.qk_rope_head_dim : 0;
        const ops::attention_facts facts{heads, kv_heads, qk, v, shared_dim, 0.1};
        numbers q{tokens, heads * qk}, k{tokens, kv_heads * (qk - shared_dim)},
            shared{tokens, std::max<integer>(shared_dim, 1)}, values{tokens, kv_heads * v}, out{tokens, heads * v},
            lse{heads, tokens}, dq{tokens, heads * qk}, dk{tokens, kv_heads * (qk - shared_dim)},
            dshared{tokens, std::max<integer>(shared_dim, 1)}, dv{tokens, kv_heads * v},
            parts{tokens, std::max<integer>(kv_heads * shared_dim, 1)};
        const ops::attention_inputs<float> in{
            q.view, k.view, qk - shared_dim, shared_dim > 0 ? shared.view : matrix<float>{}, values.view, v};
        const double pairs = static_cast<double>(tokens) * static_cast<double>(length) / 2 * static_cast<double>(heads);
        const double flops = 2 * pairs * static_cast<double>(qk + v),
                     bytes = 4.0 * static_cast<double>(tokens * heads * (2 * qk + 2 * v));
        all.add("attention, forward", layers, flops, bytes, [&] {
            ops::attention_forward<float>(queue, facts, Recipe::batch.sequences, length, in, starts.data(), out.view,
                                          lse.view);
        });
        all.add("attention, backward", layers, 2.5 * flops, 2 * bytes, [&] {
            ops::attention_backward<float>(
                queue, facts, Recipe::batch.sequences, length, in, starts.data(), out.view, lse.view, out.view,
                {dq.view, dk.view, qk - shared_dim, shared_dim > 0 ? dshared.view : matrix<float>{}, dv.view, v},
                shared_dim > 0 ? parts.view : matrix<float>{});
        });
    }
    const integer dense = c.n_routed_experts > 0 ? c.first_k_dense_replace : c.num_hidden_layers;
    if (dense > 0) {
        product("dense: gate and up", static_cast<double>(dense), tokens, h, 2 * c.intermediate_size);
        product("dense: down", static_cast<double>(dense), tokens, c.intermediate_size, h);
    }
    if (const auto sparse = static_cast<double>(c.num_hidden_layers - dense); sparse > 0) {
        const integer rows = tokens * c.num_experts_per_tok, e = c.n_routed_experts, i = c.moe_intermediate_size;
        std::vector<integer> offsets(static_cast<std::size_t>(e + 1));
        for (integer g = 0; g <= e; ++g) offsets[static_cast<std::size_t>(g)] = rows * g / e;
        numbers x{rows, h}, gate_up{rows, 2 * i}, act{rows, i}, w{e * 2 * i, h}, down{e * h, i}, scale{1, rows};
        const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(2 * i) * static_cast<double>(h);
        const double bytes = 4.0 * static_cast<double>(rows * (h + 2 * i) + e * 2 * i * h);
        all.add("experts: gate and up, forward", sparse, flops, bytes,
                [&] { ops::grouped_product(queue, gate_up.view, x.view, w.view, 2 * i, offsets.data(), e); });
        all.add("experts: gate and up, input gradient", sparse, flops, bytes,
                [&] { ops::grouped_product_input(queue, x.view, gate_up.view, w.view, 2 * i, offsets.data(), e); });
        all.add("experts: gate and up, weight gradient", sparse, flops, bytes,
                [&] { ops::grouped_product_weight(queue, w.view, gate_up.view, x.view, 2 * i, offsets.data(), e); });
        all.add("experts: down, forward", sparse, flops / 2, bytes / 2,
                [&] { ops::grouped_product(queue, x.view, act.view, down.view, h, offsets.data(), e); });
        all.add("experts: down, input gradient", sparse, flops / 2, bytes / 2,
                [&] { ops::grouped_product_input(queue, act.view, x.view, down.view, h, offsets.data(), e); });
        all.add("experts: down, weight gradient", sparse, flops / 2, bytes / 2,
                [&] { ops::grouped_product_weight(queue, down.view, x.view, act.view, h, offsets.data(), e); });
        all.add("experts: SwiGLU, forward", sparse, 0, 4.0 * static_cast<double>(3 * rows * i),
                [&] { ops::swiglu<float>(queue, act.view, gate_up.view, scale.view.data); });
        all.add("experts: SwiGLU, backward", sparse, 0, 4.0 * static_cast<double>(5 * rows * i), [&] {
            ops::swiglu_backward<float>(queue, gate_up.view, act.view, gate_up.view, scale.view.data, scale.view.data);
        });
    }
    {
        numbers x{tokens, h}, y{tokens, h}, gain{1, h}, rms{1, tokens}, dgain{1, h},
            partials{pieces(tokens, ops::rms_norm_rows), h};
        const double bytes = 4.0 * static_cast<double>(tokens * h);
        all.add("RMSNorm, forward", 2 * layers + 1, 0, 2 * bytes,
                [&] { ops::rms_norm<float>(queue, y.view, rms.view.data, x.view, gain.view.data, 1e-6); });
        all.add("RMSNorm, backward", 2 * layers + 1, 0, 4 * bytes, [&] {
            ops::rms_norm_backward<float>(queue, y.view, true, dgain.view.data, x.view, x.view, rms.view.data,
                                          gain.view.data, partials.view);
        });
        all.add("residual copy", 2 * layers, 0, 2 * bytes, [&] { ops::copy(queue, y.view, x.view); });
    }
    product("head", 1, tokens, h, c.vocab_size);
    {
        const integer rows = model.head().piece(tokens);
        numbers logits{rows, c.vocab_size};
        std::vector<double> losses(static_cast<std::size_t>(rows));
        all.add("cross-entropy", static_cast<double>(pieces(tokens, rows)), 0,
                8.0 * static_cast<double>(rows * c.vocab_size),
                [&] { ops::cross_entropy<float>(queue, logits.view, ids.data(), 1e-3, 0, losses.data()); });
    }
    auto& memory = engine.memory();
    const double parameters = static_cast<double>(memory.weights.count);
    all.add("gradients to zero", 1, 0, 4 * parameters,
            [&] { ops::fill_zero(queue, memory.gradients.data, memory.gradients.count); });
    all.add("norm, clipping and AdamW", 1, 0, (4 + 28) * parameters, [&] { engine.update({.learning_rate = 1e-5}); });

    std::printf("step %.1f ms; products at most %.0f GFLOP/s, memory at most %.1f GB/s, %d threads\n", step * 1e3,
                peak / 1e9, bandwidth / 1e9, threads);
    std::printf("%-40s %6s %10s %8s %10s %8s %8s\n", "operation", "calls", "ms a call", "share", "GFLOP/s", "GB/s",
                "of limit");
    std::FILE* file = json != nullptr ? std::fopen(json, "w") : nullptr;
    if (json != nullptr && file == nullptr) fail(json, ": cannot be written (", std::strerror(errno), ")");
    if (file != nullptr)
        std::fprintf(file, "{\"step_s\": %.6f, \"peak_flops\": %.6g, \"bandwidth\": %.6g, \"operations\": [", step,
                     peak, bandwidth);
    double known = 0;
    for (std::size_t r = 0; r < all.rows.size(); ++r) {
        const row& line = all.rows[r];
        const double share = line.calls * line.seconds / step;
        // The limit of an operation is the slower of its products and its memory traffic.
        const double limit = std::max(line.flops / peak, line.flops > 0 ? 0 : line.bytes / bandwidth);
        known += share;
        std::printf("%-40s %6.0f %10.3f %7.1f%% %10.1f %8.1f %7.0f%%\n", line.name.c_str(), line.calls,
                    line.seconds * 1e3, 100 * share, line.flops / line.seconds / 1e9, line.bytes / line.seconds / 1e9,
                    100 * limit / line.seconds);
        if (file != nullptr)
            std::fprintf(file,
                         "%s{\"name\": \"%s\", \"calls\": %.0f, \"seconds\": %.6g, \"share\": %.4f, \"flops\": %.6g, "
                         "\"bytes\": %.6g, \"of_limit\": %.4f}",
                         r > 0 ? ", " : "", line.name.c_str(), line.calls, line.seconds, share, line.flops, line.bytes,
                         limit / line.seconds);
    }
    std::printf("%-40s %25.1f%%\n", "all of the above", 100 * known);
    if (file != nullptr) {
        std::fprintf(file, "], \"explained\": %.4f}\n", known);
        std::fclose(file);
    }
    return 0;
}

}  // namespace fathom::bench

int main(int argc, char** argv) {
    std::string config = "S";
    int threads = 2;
    const char* json = nullptr;
    const option known[] = {{"config", required_argument, nullptr, 'c'},
                            {"threads", required_argument, nullptr, 't'},
                            {"json", required_argument, nullptr, 'j'},
                            {nullptr, 0, nullptr, 0}};
    for (int c; (c = getopt_long(argc, argv, "", known, nullptr)) != -1;) {
        if (c == 'c')
            config = optarg;
        else if (c == 't')
            threads = std::max(1, std::atoi(optarg));
        else if (c == 'j')
            json = optarg;
        else {
            std::fprintf(stderr, "usage: ops [--config S|M|L] [--threads N] [--json FILE]\n");
            return 2;
        }
    }
    try {
        using namespace fathom::bench;
        if (config == "S") return run<S<float>>(threads, json);
        if (config == "M") return run<M<float>>(threads, json);
        if (config == "L") return run<L<float>>(threads, json);
        fathom::fail("--config ", config, " is not known, expected S, M or L");
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "%s\n", problem.what());
        return 1;
    }
}
