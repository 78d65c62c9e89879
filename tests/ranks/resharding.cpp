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
#include "engines.hpp"

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

/// Of dense layers, with fewer heads of keys than tensor ranks.
struct dense : deepseek_llm<vocab_size<vocabulary>, hidden_size<24>, num_hidden_layers<blocks>, num_attention_heads<4>,
                            num_key_value_heads<2>, intermediate_size<16>, max_position_embeddings<32>> {};

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
    integer shard_within = 0;

    [[nodiscard]] train::layout_facts facts() const {
        const auto stages = layers != nullptr ? layers
                            : mesh.pp == 1    ? &evenly<1>
                            : mesh.pp == 2    ? &evenly<2>
                                              : &evenly<4>;
        return {.mesh = mesh,
                .zero = zero,
                .shard_within = shard_within,
                .schedule = way,
                .layers = stages,
                .micro_batches = sequences / mesh.dp};
    }
};

/// What the steps of a run gave, on all ranks.
struct history {
    std::vector<double> numbers;
    std::map<std::string, std::vector<double>> weights;
};

template <class Run> void gather(Run& run, history& seen, std::mutex& mutex) {
    const auto put = [&](const checkpoint::slice& of, const double* numbers) {
        const std::lock_guard lock{mutex};
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

template <class T = double, bool Split = true, class Model = tiny>
auto make_run(const comm::link& ranks, const layout& how, models::model_config config = Model::config()) {
    const auto model = Model::family::template transformer<T, Split>(config);
    const train::layout_facts facts =
        Split ? how.facts() : train::layout_facts{.mesh = how.mesh, .zero = how.zero, .shard_within = how.shard_within};
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
    gather(run, seen, mutex);
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
layout of(degrees mesh, integer zero = 0, integer shard_within = 0) {
    return {.mesh = mesh, .zero = zero, .shard_within = shard_within};
}
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
        {of({.dp = 2}, 3), of({.dp = 4}, 2)},
        {of({.dp = 4}, 1, 2), of({.dp = 2, .tp = 2}, 2, 1)},
        {of({.dp = 2, .tp = 2}), of({.dp = 4}, 3, 2)},
        {of({.dp = 2, .tp = 2}, 3), of({.dp = 2, .pp = 2, .ep = 2}, 3)},
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

namespace {

/// Each layout goes on from the save of the one before and saves, without a step: all numbers keep their bits, and
/// weights are the masters rounded.
template <class T, class Model> void keep_bits(const std::vector<layout>& layouts) {
    const scratch_folder folder;
    write_text(folder / "text.bin");
    std::map<std::string, std::vector<double>> before;
    for (const layout& how : layouts) {
        std::map<std::string, std::vector<double>> now;
        std::mutex mutex;
        integer wrong = 0;
        comm::threads::run(how.mesh.ranks(), [&](auto& mine) {
            auto run = make_run<T, true, Model>(comm::link{mine}, how);
            if (!checkpoint::resume(run, folder / "run")) {
                training_text text{run, folder / "text.bin"};
                run.step(*text.next());
            }
            checkpoint::save(run, folder / "run");
            const auto look = [&](const std::string& prefix, const auto& of, const auto* numbers, bool) {
                const std::lock_guard lock{mutex};
                auto& whole = now[prefix + of.name];
                whole.resize(static_cast<std::size_t>(of.of_rows * of.of_columns), std::nan(""));
                for (integer r = 0; r < of.rows; ++r)
                    for (integer c = 0; c < of.columns; ++c)
                        whole[static_cast<std::size_t>((of.row + r) * of.of_columns + of.column + c)] =
                            static_cast<double>(numbers[r * of.columns + c]);
            };
            checkpoint::detail::each_state(run, look);
            train::each_held_slice(run.engine(), [&](const auto& s) {
                const std::lock_guard lock{mutex};
                for (integer i = 0; i < s.of.size(); ++i)
                    wrong += static_cast<double>(s.weights[i]) == static_cast<double>(T(s.master[i])) ? 0 : 1;
            });
        });
        const std::string text = text_of_layout(how);
        CAPTURE(text);
        CHECK(wrong == 0);
        CHECK(now.size() > 30);
        if (!before.empty()) CHECK(now == before);
        before = now;
    }
}

}  // namespace

TEST_CASE("masters, moments and biases keep their bits through a save, and weights are the masters rounded") {
    keep_bits<bf16, tiny>({of({.dp = 4}, 1), of({.pp = 2, .tp = 2}), of({.tp = 2, .cp = 2}, 1), of({.dp = 3}, 3),
                           scheduled<schedule::dual_pipe, 2>({.dp = 2, .pp = 2}, 1), of({.dp = 2, .tp = 2}, 2), one});
}

TEST_CASE("so do the rows that some of the tensor ranks share") {
    keep_bits<double, dense>({of({.tp = 4}), of({.dp = 2, .tp = 4}, 1), of({.tp = 2}),
                              of({.dp = 2, .pp = 2, .tp = 2}, 3), one, of({.dp = 2, .tp = 4})});
}

TEST_CASE("a save that is cut off is not seen, on any rank, and the one before is used") {
    const scratch_folder folder;
    write_text(folder / "text.bin");
    history seen;
    go_on_together(of({.tp = 2}), folder.path(), 2, seen);
    const layout how = of({.dp = 2, .tp = 2}, 1);
    for (const char* file : {"state-00003-of-00004.safetensors", "run.json", "complete"}) {
        static std::string cut;
        cut = file;
        std::vector<std::string> errors(4);
        comm::threads::run(4, [&](auto& mine) {
            auto run = make_run(comm::link{mine}, how);
            REQUIRE(checkpoint::resume(run, folder / "run"));
            CHECK(run.steps_done() == 2);
            training_text text{run, folder / "text.bin"};
            run.step(*text.next());
            errors[static_cast<std::size_t>(mine.rank())] = message_of([&] {
                checkpoint::save(run, folder / "run", 2, [](const char* step, const std::string& path) {
                    if (std::string_view{step} == "write" && path.ends_with(cut)) fail(path, ": full");
                });
            });
        });
        for (const std::string& error : errors) CHECK(error != "no error");
        CHECK(checkpoint::saved_steps(folder / "run").size() == 1);
    }
    go_on_together(how, folder.path(), 3, seen);
    go_on_together(one, folder.path(), 6, seen);
    compare(seen, unbroken());
}

TEST_CASE("saves of other models and formats are refused with both layouts") {
    const scratch_folder folder;
    write_text(folder / "text.bin");
    history seen;
    go_on_together(of({.dp = 2}, 1), folder.path(), 1, seen);
    const std::string layouts =
        "saved by ranks of dp 2 pp 1 tp 1 cp 1 ep 1 etp 1 zero 1, read by ranks of dp 1 pp 2 tp 1 cp 1 ep 1 etp 1 zero "
        "0 schedule one_f_one_b: ";
    const auto refused = [&](auto&& make) {
        return message_of([&] {
            comm::threads::run(2, [&](auto& mine) {
                auto run = make(comm::link{mine});
                checkpoint::resume(run, folder / "run");
            });
        });
    };
    const layout other = of({.pp = 2});
    const std::string weights = refused([&](const comm::link& ranks) { return make_run<bf16>(ranks, other); });
    CHECK_MESSAGE(weights.find(layouts) != std::string::npos, weights);
    CHECK_MESSAGE(weights.find("run.json: weights are ") != std::string::npos, weights);
    const std::string model = refused([&](const comm::link& ranks) {
        models::model_config config = tiny::config();
        config.moe_intermediate_size = 16;
        return make_run(ranks, other, config);
    });
    CHECK_MESSAGE(model.find(layouts) != std::string::npos, model);
    CHECK_MESSAGE(model.find("moe_intermediate_size") != std::string::npos, model);
}

TEST_CASE("a pretrained directory is read by ranks that split the model, and written by them to the same bytes") {
    const scratch_folder folder;
    write_text(folder / "text.bin");
    double loss = 0;
    comm::threads::run(1, [&](auto& mine) {
        auto run = make_run<double, false>(comm::link{mine}, one);
        training_text text{run, folder / "text.bin"};
        run.step(*text.next());
        loss = run.evaluate(*text.next()).loss;
        train::save_pretrained(run.engine(), tiny::config(), "", folder / "whole");
    });
    comm::threads::run(2, [&](auto& mine) {
        auto run = make_run<double, false>(comm::link{mine}, of({.dp = 2}, 3));
        train::load_pretrained(run.engine(), folder / "whole");
        train::save_pretrained(run.engine(), tiny::config(), "", folder / "sharded");
    });
    const std::string file = contents(folder / "whole/model.safetensors");
    CHECK(contents(folder / "sharded/model.safetensors") == file);
    const layout layouts[] = {of({.pp = 2, .tp = 2}), of({.dp = 4, .ep = 4}, 1), of({.tp = 4, .ep = 2, .etp = 2}),
                              of({.dp = 2, .tp = 2}, 3), scheduled<schedule::dual_pipe, 2>({.pp = 2})};
    for (const layout& how : layouts) {
        const std::string text = text_of_layout(how);
        CAPTURE(text);
        double found = 0;
        comm::threads::run(how.mesh.ranks(), [&](auto& mine) {
            auto run = make_run(comm::link{mine}, how);
            train::load_pretrained(run.engine(), folder / "whole");
            training_text of_run{run, folder / "text.bin"};
            (void)of_run.next();
            const double seen = run.evaluate(*of_run.next()).loss;
            if (mine.rank() == 0) found = seen;
            train::save_pretrained(run.engine(), tiny::config(), "", folder / "split");
            train::save_pretrained(run.engine(), tiny::config(), "", folder / "parts", 20'000);
        });
        CHECK(std::abs(found - loss) < 1e-10 * loss);
        CHECK(contents(folder / "split/model.safetensors") == file);
        CHECK(contents(folder / "split/config.json") == contents(folder / "whole/config.json"));
        CHECK_NOTHROW(checkpoint::check_directory(folder / "split"));
        const auto whole = safetensors::open_model_directory(folder / "whole");
        const auto parts = safetensors::open_model_directory(folder / "parts");
        CHECK(parts.files().size() > 1);
        REQUIRE(parts.tensors().size() == whole.tensors().size());
        for (const auto& tensor : whole.tensors()) CHECK(std::ranges::equal(parts.at(tensor.name).bytes, tensor.bytes));
        std::filesystem::remove_all(folder / "parts");
    }
}

TEST_CASE("ranks that split a model refuse a directory with other tensors than its own") {
    const scratch_folder folder;
    comm::threads::run(1, [&](auto& mine) {
        auto run = make_run<double, false>(comm::link{mine}, one);
        train::save_pretrained(run.engine(), tiny::config(), "", folder / "whole");
    });
    const auto refused = [&] {
        return message_of([&] {
            comm::threads::run(2, [&](auto& mine) {
                auto run = make_run(comm::link{mine}, of({.pp = 2}));
                train::load_pretrained(run.engine(), folder / "whole");
            });
        });
    };
    CHECK(refused() == "no error");
    const safetensors::file whole{folder / "whole/model.safetensors"};
    auto tensors = whole.tensors();
    std::vector<double> more(3);
    tensors.push_back({"model.more", safetensors::dtype::f64, {3}, std::as_bytes(std::span<const double>{more}), {}});
    safetensors::write(folder / "whole/model.safetensors", tensors);
    CHECK(refused().find("tensor model.more of shape [3] and type F64 is not in the described model") !=
          std::string::npos);
    tensors.pop_back();
    std::erase_if(tensors, [](const auto& t) { return t.name == "lm_head.weight"; });
    safetensors::write(folder / "whole/model.safetensors", tensors);
    CHECK(refused().find("tensor lm_head.weight is missing, expected shape [40, 24]") != std::string::npos);
}

}  // namespace fathom
