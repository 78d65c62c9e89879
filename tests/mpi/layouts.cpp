// A small model in any layout, on threads or processes as it is launched: what run.py stops, kills and resumes.
//     layouts train FOLDER LAYOUT STEPS   goes on from the last save, up to so many steps in all, and saves
//     layouts FAULT FOLDER LAYOUT         the same for two steps, of which rank 1 does not live through the second
//     layouts record FILE LAYOUT          one step's record, of all ranks, as a file
//     layouts compare FILE LAYOUT         the first tensor of such a file that this layout has otherwise, if any
//     layouts misplaced FILE LAYOUT       the same where rank 3 has a weight otherwise
// LAYOUT: dp=2,tp=2,zero=1 and so on; `one` for one rank. Prints what each step gave, to every digit.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fathom/core/random_stream.hpp>
#include <fathom/data/corpus_writer.hpp>
#include <fathom/fathom.hpp>
#include <fathom/models/families.hpp>
#include <fathom/mpi.hpp>
#include <fathom/train/first_difference.hpp>
#include <fathom/train/gather_step.hpp>
#include <fathom/train/record_step.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "../ranks/engines.hpp"

namespace fathom {
namespace {

constexpr integer length = 16, vocabulary = 40, blocks = 4, sequences = 12;
struct tiny : deepseek_v3<vocab_size<vocabulary>, hidden_size<24>, num_hidden_layers<blocks>, first_k_dense_replace<1>,
                          num_attention_heads<4>, q_lora_rank<12>, kv_lora_rank<8>, qk_nope_head_dim<6>,
                          qk_rope_head_dim<4>, v_head_dim<5>, intermediate_size<16>, moe_intermediate_size<8>,
                          n_routed_experts<8>, num_experts_per_tok<3>, n_shared_experts<1>, num_nextn_predict_layers<1>,
                          max_position_embeddings<32>, initializer_range<0.1>> {};

/// Layers of pipeline stages: the last one has the head and the module of multi-token prediction.
template <integer Count> layer_range evenly(integer stage) {
    const share_of mine{blocks + 1, Count, stage};
    return {mine.first, mine.count + (stage == Count - 1 ? 2 : 0)};
}

train::layout_facts layout_of(std::string_view text) {
    train::layout_facts layout;
    degrees& d = layout.mesh;
    for (std::string_view rest = text == "one" ? "" : text; !rest.empty();) {
        const std::string_view word = rest.substr(0, rest.find(','));
        rest.remove_prefix(std::min(rest.size(), word.size() + 1));
        const std::pair<std::string_view, integer*> words[] = {{"dp=", &d.dp}, {"tp=", &d.tp}, {"pp=", &d.pp},
                                                               {"cp=", &d.cp}, {"ep=", &d.ep}, {"zero=", &layout.zero}};
        bool known = false;
        for (const auto& [name, to] : words)
            if (word.starts_with(name) && word.size() == name.size() + 1) *to = word.back() - '0', known = true;
        if (!known) fail("layouts: found ", word, ", expected a word such as dp=2");
    }
    layout.layers = d.pp == 1 ? &evenly<1> : d.pp == 2 ? &evenly<2> : &evenly<4>;
    layout.micro_batches = sequences / d.dp;
    return layout;
}

/// Documents of uneven lengths.
void write_text(const std::string& path) {
    corpus_writer writer{vocabulary, 0};
    const random_stream drawn{3, 7};
    std::uint64_t n = 0;
    for (int d = 0; d < 60; ++d) {
        std::vector<std::int32_t> ids(static_cast<std::size_t>(8 + d % 11));
        for (auto& id : ids) id = static_cast<std::int32_t>(drawn.uniform(n++) * static_cast<double>(vocabulary));
        writer.add(ids, ids.size(), false);
    }
    writer.write(path);
}

auto make_run(const comm::link& ranks, const train::layout_facts& layout) {
    const auto model = models::latent_family::transformer<double, true>(tiny::config());
    return run<std::remove_const_t<decltype(model)>>{
        model,
        {{1, length}, optim::decay::matrices, tiny::config(), {}},
        {.batch = {1, length}, .workers = 1},
        0,
        {.learning_rate = 3e-3, .warmup_steps = 2, .training_steps = 6, .micro_batches = sequences / layout.mesh.dp},
        ranks,
        layout};
}

[[noreturn]] void sleep_for_ever() {
    for (;;) ::pause();
}
/// In the middle of the step, behind its first micro-batch.
template <class Run> void plant(Run& run, std::string_view fault) {
    if (fault == "never_comes") sleep_for_ever();
    run.engine().stages().watch_forward([fault](const auto&, int micro_batch, int, const auto&) {
        if (micro_batch > 0) ::kill(::getpid(), fault == "killed" ? SIGKILL : SIGSTOP);
    });
}

void train_ranks(world& all, std::string_view what, const std::string& folder, std::string_view layout, int until) {
    auto run = make_run(all.ranks(), layout_of(layout));
    const std::string text_path = folder + "/text.bin";
    if (all.rank() == 0) write_text(text_path);
    all.meet("text");
    checkpoint::resume(run, folder + "/run");
    training_text text{run, text_path};
    while (run.steps_done() < until) {
        if (what != "train" && run.steps_done() == 1 && all.rank() == 1) plant(run, what);
        const step_result seen = run.step(*text.next());
        char line[96];
        std::snprintf(line, sizeof line, "%lld %.17g %.17g %.17g", static_cast<long long>(seen.step), seen.loss,
                      seen.mtp_loss, seen.gradient_norm);
        all.print(line);
    }
    checkpoint::save(run, folder + "/run");
}

/// A batch drawn by a fixed seed, one step of it recorded by all ranks, and what rank 0 does with the whole record.
void record_ranks(world& all, std::string_view what, const std::string& file, std::string_view layout) {
    auto run = make_run(all.ranks(), layout_of(layout));
    if (what == "misplaced" && all.rank() == 3)
        run.engine().each_part([](const auto& p, const nn::part& part) {
            if (p.name == "model.layers.2.self_attn.o_proj.weight") p.value(part.first, 1) += 0.25;
        });
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(2 * sequences * length));
    const random_stream drawn{5, 7};
    for (std::size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = static_cast<std::int32_t>(drawn.uniform(i) * static_cast<double>(vocabulary));
    const std::vector<std::int32_t> starts(tokens.size(), 0);
    train::recorded_step seen;
    train::record_step(run.engine(),
                       {sequences, length, tokens.data(), tokens.data() + sequences * length, nullptr, starts.data()},
                       {.balance_alpha = 0.05}, seen);
    train::gather_step(all.ranks(), seen);
    if (all.rank() > 0) {
        if (!seen.tensors().empty()) fail("layouts: a rank kept its part of a record that was gathered");
        return;
    }
    if (what == "record") return seen.write(file);
    train::recorded_step stored;
    stored.read(file, seen);
    const auto found = train::first_difference(seen, stored, 1e-10);
    all.print(found ? train::describe(*found)
                    : text_of(stored.tensors().size(), " of ", seen.tensors().size(), " tensors agree"));
}

}  // namespace
}  // namespace fathom

int main(int argc, char** argv) {
    using namespace fathom;
    const std::string_view what = argc > 1 ? argv[1] : "";
    const bool records = what == "record" || what == "compare" || what == "misplaced";
    const bool fails = !records && what != "train";
    const comm::watchdog limit{.limit = fails ? 3.0 : 600.0};
    return launch<mesh<dp<any>>>(
        argc, argv,
        [&](world& all) {
            if (argc < 4) fail("layouts: found too few arguments, expected WHAT FOLDER LAYOUT");
            if (records) return record_ranks(all, what, argv[2], argv[3]);
            train_ranks(all, what, argv[2], argv[3], argc > 4 ? std::atoi(argv[4]) : 2);
        },
        limit);
}
