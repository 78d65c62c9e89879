// A run goes on in any layout from the save of any other: losses and weights are those of one rank that never stopped.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fathom/comm.hpp>
#include <fathom/core/random_stream.hpp>
#include <fathom/data/corpus_writer.hpp>
#include <fathom/models/families.hpp>
#include <fathom/train/checkpoint.hpp>
#include <fathom/train/run.hpp>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "../unit/scratch_folder.hpp"

namespace fathom {
namespace {

using test::contents;
using test::message_of;
using test::scratch_folder;

constexpr integer length = 16, vocabulary = 40, depths = 1, blocks = 4, sequences = 12;
struct tiny : deepseek_v3<vocab_size<vocabulary>, hidden_size<24>, num_hidden_layers<blocks>, first_k_dense_replace<1>,
                          num_attention_heads<4>, q_lora_rank<12>, kv_lora_rank<8>, qk_nope_head_dim<6>,
                          qk_rope_head_dim<4>, v_head_dim<5>, intermediate_size<16>, moe_intermediate_size<8>,
                          n_routed_experts<8>, num_experts_per_tok<3>, n_shared_experts<1>,
                          num_nextn_predict_layers<depths>, max_position_embeddings<32>, initializer_range<0.1>> {};

/// Layers of pipeline stages: the last one has the head and the module of multi-token prediction.
template <integer Count> layer_range evenly(integer stage) {
    const share_of mine{blocks + 1, Count, stage};
    return {mine.first, mine.count + (stage == Count - 1 ? 1 + depths : 0)};
}

/// A layout under a name.
struct layout {
    degrees mesh;
    integer zero = 0;
    schedule::built (*way)(int, int) = &schedule::built::of<schedule::one_f_one_b>;
    models::layers_of_stage layers = nullptr;

    [[nodiscard]] train::layout_facts facts() const {
        const auto stages = layers != nullptr ? layers
                            : mesh.pp == 1    ? &evenly<1>
                            : mesh.pp == 2    ? &evenly<2>
                                              : &evenly<4>;
        return {.mesh = mesh, .zero = zero, .schedule = way, .layers = stages, .micro_batches = sequences / mesh.dp};
    }
};

/// What the steps of a run gave, on all ranks.
struct history {
    std::vector<double> numbers;
    std::map<std::string, std::vector<double>> weights;
    std::vector<std::string> incomplete;
};

template <class Run> void gather(Run& run, history& seen) {
    const auto put = [&](const checkpoint::slice& of, const double* numbers) {
        auto& whole = seen.weights[of.name];
        whole.resize(static_cast<std::size_t>(of.of_rows * of.of_columns), std::nan(""));
        for (integer r = 0; r < of.rows; ++r)
            for (integer c = 0; c < of.columns; ++c)
                whole[static_cast<std::size_t>((of.row + r) * of.of_columns + of.column + c)] =
                    numbers[r * of.columns + c];
    };
    train::each_held_slice(run.engine(), [&](const auto& s) { put(s.of, s.weights); });
    for (const auto& bias : train::named_router_biases(run.engine()))
        put(train::detail::slice_of(bias), bias.numbers.data());
}

template <class T = double, bool Split = true>
auto make_run(const comm::link& ranks, const layout& how, models::model_config config = tiny::config()) {
    const auto model = models::latent_family::transformer<T, Split>(config);
    const train::layout_facts facts = Split ? how.facts() : train::layout_facts{.mesh = how.mesh, .zero = how.zero};
    return run<std::remove_const_t<decltype(model)>>{model,
                                                     {{1, length}, optim::decay::matrices, config, {}},
                                                     {.batch = {1, length}, .workers = 1},
                                                     0,
                                                     {.learning_rate = 3e-3,
                                                      .warmup_steps = 2,
                                                      .training_steps = 6,
                                                      .micro_batches = sequences / how.mesh.dp,
                                                      .balance_alpha = 0.05,
                                                      .bias_update_speed = 0.01},
                                                     ranks,
                                                     facts};
}

/// Goes on from the last save in `folder`, if there is one, up to a step, and saves.
template <bool Split = true>
void go_on(const comm::link& ranks, const layout& how, const std::string& folder, int until, history& seen,
           std::mutex& mutex) {
    auto run = make_run<double, Split>(ranks, how);
    checkpoint::resume(run, folder + "/run");
    training_text text{run, folder + "/text.bin"};
    while (run.steps_done() < until) {
        const step_result r = run.step(*text.next());
        if (ranks.rank() == 0)
            for (const double x : {r.loss, r.mtp_loss, r.gradient_norm, static_cast<double>(r.targets)})
                seen.numbers.push_back(x);
    }
    checkpoint::save(run, folder + "/run");
    const std::lock_guard lock{mutex};
    gather(run, seen);
}
void go_on_together(const layout& how, const std::string& folder, int until, history& seen) {
    std::mutex mutex;
    seen.weights.clear();
    comm::threads::run(how.mesh.ranks(), [&](auto& mine) {
        if (how.mesh.split())
            go_on(comm::link{mine}, how, folder, until, seen, mutex);
        else
            go_on<false>(comm::link{mine}, how, folder, until, seen, mutex);
    });
}

/// Documents of uneven lengths, of which six steps read more than one epoch.
void write_text(const std::string& path) {
    corpus_writer writer{vocabulary, 0};
    const random_stream drawn{3, 7};
    std::uint64_t n = 0;
    for (int d = 0; d < 60; ++d) {
        std::vector<std::int32_t> ids(static_cast<std::size_t>(8 + d % 11));
        for (auto& id : ids) id = static_cast<std::int32_t>(drawn.uniform(n++) * static_cast<double>(vocabulary));
        writer.add(ids, ids.size(), d == 7);
    }
    writer.write(path);
}

double apart(const std::vector<double>& a, const std::vector<double>& b) {
    if (a.size() != b.size()) return 1e9;
    double most = 0, largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        if (std::isnan(a[i])) return 1e9;
        most = std::max(most, std::abs(a[i] - b[i]));
        largest = std::max(largest, std::abs(b[i]));
    }
    return largest == 0 ? (most == 0 ? 0 : 1e9) : most / largest;
}
void compare(const history& seen, const history& expected) {
    CHECK(apart(seen.numbers, expected.numbers) < 1e-10);
    CHECK(seen.weights.size() == expected.weights.size());
    for (const auto& [name, numbers] : expected.weights) {
        CAPTURE(name);
        const auto found = seen.weights.find(name);
        if (found == seen.weights.end() || apart(found->second, numbers) >= 1e-10) {
            CHECK(found != seen.weights.end());
            CHECK(apart(found->second, numbers) < 1e-10);
        }
    }
}

const layout one{};
layout of(degrees mesh, integer zero = 0) { return {.mesh = mesh, .zero = zero}; }
template <class Schedule, integer Stages> layout scheduled(degrees mesh, integer zero = 0) {
    return {.mesh = mesh, .zero = zero, .way = &schedule::built::of<Schedule>, .layers = &evenly<Stages>};
}

/// What six steps of one rank give.
const history& unbroken() {
    static const history seen = [] {
        const scratch_folder folder;
        write_text(folder / "text.bin");
        history of_one;
        go_on_together(one, folder.path(), 6, of_one);
        return of_one;
    }();
    return seen;
}

std::string text_of_layout(const layout& l) {
    return text_of("dp ", l.mesh.dp, " pp ", l.mesh.pp, " tp ", l.mesh.tp, " cp ", l.mesh.cp, " ep ", l.mesh.ep,
                   " etp ", l.mesh.etp, " zero ", l.zero);
}

}  // namespace

TEST_CASE("a run goes on in any layout from another's save") {
    const std::pair<layout, layout> pairs[] = {
        {of({.tp = 2}), one},
        {one, of({.pp = 2, .tp = 2})},
        {of({.dp = 4}, 1), of({.dp = 6}, 1)},
        {of({.pp = 2}), one},
        {of({.dp = 4, .ep = 4}), of({.tp = 2, .ep = 2})},
        {of({.cp = 2}), of({.dp = 2})},
        {of({.dp = 4}, 1), of({.dp = 2})},
        {scheduled<schedule::dual_pipe, 2>({.pp = 2}), of({.pp = 4})},
        {of({.pp = 4}), scheduled<schedule::dual_pipe, 2>({.dp = 2, .pp = 2}, 1)},
        {scheduled<schedule::zb_v, 4>({.pp = 2}), scheduled<schedule::interleaved_one_f_one_b<2>, 4>({.pp = 2})},
        {of({.dp = 3, .tp = 2}, 1), of({.dp = 2, .tp = 4}, 1)},
        {of({.dp = 2, .tp = 2, .ep = 2, .etp = 2}, 1), of({.dp = 2, .cp = 2, .ep = 4})},
    };
    for (const auto& [first, then] : pairs) {
        const std::string text = text_of_layout(first) + " -> " + text_of_layout(then);
        CAPTURE(text);
        const scratch_folder folder;
        write_text(folder / "text.bin");
        history seen;
        go_on_together(first, folder.path(), 3, seen);
        go_on_together(then, folder.path(), 6, seen);
        compare(seen, unbroken());
    }
}

}  // namespace fathom
