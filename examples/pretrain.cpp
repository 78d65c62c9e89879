// Trains a small DeepSeek-V3 on text of this machine: what `./dev train` runs.
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fathom/comm/broadcast.hpp>
#include <fathom/fathom.hpp>
#include <fathom/ops/product/peak.hpp>
#include <optional>
#include <string>
#include <vector>

#include "pretrain/history.hpp"
#include "pretrain/options.hpp"
#include "pretrain/stage.hpp"
#include "pretrain/text.hpp"

namespace pretrain {

using namespace fathom;

// A first spread of 0.04 rather than V3's 0.006: at so small a width, products of narrower weights begin close to
// nothing, and a run of minutes is over before they have grown.
// clang-format off
struct tiny : deepseek_v3<
    vocab_size<4'096>, hidden_size<256>, num_hidden_layers<6>, first_k_dense_replace<1>,
    num_attention_heads<8>, q_lora_rank<96>, kv_lora_rank<64>,
    qk_nope_head_dim<32>, qk_rope_head_dim<16>, v_head_dim<32>,
    intermediate_size<704>, moe_intermediate_size<128>,
    n_routed_experts<16>, num_experts_per_tok<4>, n_shared_experts<1>, n_group<4>, topk_group<2>,
    max_position_embeddings<1'024>, initializer_range<0.04>> {};
// clang-format on
struct machine : mesh<dp<any>> {};  // one rank, or several that share each batch
struct numbers : precision<weights<fp32>> {};
// Few tokens a step: in a few minutes many small steps learn more than few large ones.
struct recipe : training<tiny, machine, numbers, sequence_length<256>, micro_batch<2>, optimizer::adamw,
                         recompute<norms, swiglu>> {};
static_assert(bytes_per_rank<recipe>(host_workers<4>{}) <= 1_GiB);

constexpr int stopped_by_signal = 130;  // exit status, as shells have it
constexpr double mebibyte = 1024 * 1024;

template <class... Numbers> std::string form(const char* text, Numbers... parts) {
    char line[256];
    std::snprintf(line, sizeof line, text, parts...);
    return line;
}

/// The usual settings, then those that a run had at its last save, then what the command line says.
run_settings settings_for(const options& chosen, const std::optional<checkpoint::saved_step>& last) {
    run_settings settings = usual_settings();
    std::vector<std::string> all = last ? saved_settings(last->path + "/run.json") : std::vector<std::string>{};
    all.insert(all.end(), chosen.set.begin(), chosen.set.end());
    if (chosen.steps > 0) all.push_back(text_of("training_steps=", chosen.steps));
    for (const std::string& assignment : all) set(settings, assignment);
    if (last && settings.training_steps < last->step)
        fail(last->path, ": found a run that has done ", last->step,
             " steps, expected at most training_steps=", settings.training_steps, "; --fresh starts anew");
    return settings;
}

/// How many steps fit into that many seconds, evaluations and saves included: a run that is thrown away takes a few.
integer steps_within(world& here, run_settings settings, const std::string& corpus, double seconds) {
    stage pace_stage{"pace", here.rank() == 0};
    settings.training_steps = 1'000;  // any: these steps are not kept
    auto trial = start<recipe>(here, settings);
    training_text text{trial, corpus};
    constexpr int warm_up = 2, timed = 6;
    double start = 0;
    for (int i = 0; i < warm_up + timed; ++i) {
        if (i == warm_up) start = seconds_now();
        trial.step(*text.next());
    }
    const double step = (seconds_now() - start) / timed;
    auto steps = std::max(integer{10}, static_cast<integer>(0.93 * seconds / step));
    here.ranks().run(comm::broadcast(&steps, 1, 0).from("number of steps"));
    pace_stage.done(form("%.0f ms a step: %lld steps in %s", 1e3 * step, static_cast<long long>(steps),
                         observe::duration_text(seconds).c_str()));
    return steps;
}

/// The mean loss over `some` sequences spread over the held-out text, or over all of it (0). Ranks share the sequences;
/// all get the same mean.
template <class Run> train::step_result evaluate(Run& run, const loader& order, integer some) {
    train::step_result mean;
    const integer total = order.held_out_sequences(), at_once = some > 0 ? 1 : run.facts().batch.sequences;
    const integer all = pieces(total, at_once), count = some > 0 ? std::min(some, all) : all;
    const integer ranks = run.ranks().size();
    for (integer i = run.ranks().rank(); i < round_up(count, ranks); i += ranks) {
        const integer first = i < count ? all * i / count * at_once : total;  // nothing, while others have their last
        const auto seen = run.evaluate(order.held_out(first, std::min(at_once, total - first)));
        mean.cross_entropy += seen.cross_entropy * static_cast<double>(seen.targets);
        mean.targets += seen.targets;
    }
    mean.cross_entropy /= static_cast<double>(std::max(mean.targets, std::int64_t{1}));
    mean.step = run.steps_done();
    return mean;
}

void write_curve(const options& chosen, const history& past, const run_settings& settings, double bigram) {
    const auto steps = static_cast<long long>(past.training.empty() ? 0 : std::llround(past.training.back().step));
    observe::loss_curve curve;
    curve.title = "Fathom: " + chosen.run;
    curve.subtitle = form("%lld of %lld steps in %s, peak learning rate %.3g (%s), seed %llu", steps,
                          static_cast<long long>(settings.training_steps), observe::duration_text(past.seconds).c_str(),
                          settings.learning_rate, settings.schedule.substr(0, 40).c_str(),
                          static_cast<unsigned long long>(settings.seed));
    curve.training = past.training;
    curve.validation = past.validation;
    curve.baseline = bigram;
    curve.baseline_name = "bigram";
    write_atomically(chosen.run + "/loss.html", observe::loss_curve_html(curve));
}

/// Steps until the run is finished (true) or somebody stops it (false).
template <class Run>
bool train(world& here, Run& run, training_text<Run>& text, const options& chosen, double peak, double bigram,
           observe::log* log, history& past) {
    const run_settings& settings = run.settings();
    const integer total = settings.training_steps, first = run.steps_done();
    const integer evaluate_every = chosen.evaluate_every > 0 ? chosen.evaluate_every : std::max(integer{1}, total / 8);
    const double flops = run.facts().plan.flops * static_cast<double>(settings.micro_batches * here.size());
    const bool shows = here.rank() == 0;
    constexpr integer some = 40;  // sequences of the held-out text
    double pace = 0;              // seconds a step, smoothed
    observe::progress progress{stdout, first, total};
    run.save_bad_batch_as(chosen.run + "/bad_batch.safetensors");
    while (!run.finished()) {
        const double start = seconds_now();
        const auto batch = text.next();
        const train::step_result seen = run.step(*batch);
        const double took = seconds_now() - start;
        pace = pace == 0 ? took : 0.9 * pace + 0.1 * took;
        past.seconds += took;
        past.training.push_back({static_cast<double>(seen.step), seen.cross_entropy});
        const double tokens = static_cast<double>(seen.tokens);
        const integer resident = observe::memory_of_process().resident;
        if (shows) {
            log->write("step", {{"step", seen.step},
                                {"loss", seen.loss},
                                {"cross_entropy", seen.cross_entropy},
                                {"mtp_loss", seen.mtp_loss},
                                {"balance_loss", seen.balance_loss},
                                {"gradient_norm", seen.gradient_norm},
                                {"learning_rate", seen.learning_rate},
                                {"tokens", seen.tokens},
                                {"seconds", took},
                                {"tokens_per_second", tokens / took},
                                {"share_of_peak", flops / took / peak},
                                {"resident_bytes", resident}});
            progress.show(seen.step, form("loss %.3f  norm %.2f  rate %.1e  %.1fk tok/s  %.0f%% of peak  %.0f MiB",
                                          seen.loss, seen.gradient_norm, seen.learning_rate, tokens / pace / 1e3,
                                          100 * flops / pace / peak, static_cast<double>(resident) / mebibyte));
        }
        if (run.every(evaluate_every) && !run.finished()) {
            const auto held_out = evaluate(run, text.order(), some);
            if (shows) {
                log->write("evaluation", {{"step", held_out.step},
                                          {"cross_entropy", held_out.cross_entropy},
                                          {"targets", held_out.targets}});
                past.validation.push_back({static_cast<double>(held_out.step), held_out.cross_entropy});
                progress.print(form("step %lld: loss %.3f on part of the held-out text",
                                    static_cast<long long>(seen.step), held_out.cross_entropy));
                write_curve(chosen, past, settings, bigram);
            }
        }
        const bool stop = here.stop_requested() || (chosen.stop_after > 0 && seen.step - first >= chosen.stop_after);
        if (run.finished() || stop || run.every(chosen.save_every)) checkpoint::save(run, chosen.run);
        if (stop && !run.finished()) {
            progress.finish();
            if (shows) write_curve(chosen, past, settings, bigram);
            here.print(text_of("stopped; saved as ", checkpoint::step_path(chosen.run, seen.step),
                               ". The same command goes on from there."));
            return false;
        }
    }
    return true;
}

/// What the model says, on standard output and in samples.txt.
template <class Run>
void sample(Run& run, const run_text& text, const std::vector<std::vector<std::int32_t>>& given,
            const options& chosen) {
    if (chosen.sample_tokens == 0 || given.empty()) return;
    stage sample_stage{"samples"};
    integer longest = 0;
    for (const auto& prompt : given) longest = std::max(longest, static_cast<integer>(prompt.size()));
    train::generator generator{run.engine(), static_cast<integer>(given.size()),
                               std::min(longest + chosen.sample_tokens, tiny::config().max_position_embeddings)};
    const auto added = generator.generate(
        given, {.most_tokens = chosen.sample_tokens,
                .how = {.temperature = chosen.temperature, .top_p = chosen.top_p, .seed = run.settings().seed},
                .vocab_size = vocabulary_of(text),
                .end_tokens = {end_of_document(text)}});
    std::string all;
    for (std::size_t i = 0; i < given.size(); ++i)
        all += text_of("--- sample ", i + 1, ", given:\n", decode(text, given[i]), "\n--- and the model goes on:\n",
                       decode(text, added[i]), '\n');
    write_atomically(chosen.run + "/samples.txt", all);
    sample_stage.done(text_of(given.size(), " texts, also in ", chosen.run, "/samples.txt"));
    std::printf("%s---\n", all.c_str());
}

/// Rank 0 prepares, shows, logs and samples; all others take steps with it.
int pretrain(world& here, const options& chosen) {
    using checkpoint::latest_complete, checkpoint::saved_steps;
    const bool shows = here.rank() == 0;
    if (chosen.fresh && shows)
        for (const auto& save : saved_steps(chosen.run)) checkpoint::detail::remove_tree(save.path, nullptr);
    here.meet("old saves removed");
    std::string damaged;
    const auto last = latest_complete(chosen.run, &damaged);
    if (!damaged.empty()) here.print("not read: " + damaged.substr(0, damaged.size() - 1));
    run_settings settings = settings_for(chosen, last);
    const run_text text = text_of_run(chosen.run);
    yardstick held_out;
    std::vector<std::vector<std::int32_t>> given;
    if (shows) {
        prepare_text(chosen, last.has_value(), tiny::config().vocab_size);
        held_out = measure_held_out(text, recipe::batch.length, settings.across_documents);
        given = prompts(text, chosen);
    }
    here.meet("text");
    for (const auto& prompt : given)
        if (static_cast<integer>(prompt.size()) >= tiny::config().max_position_embeddings)
            fail("--prompt: found ", prompt.size(), " tokens, expected fewer than ",
                 tiny::config().max_position_embeddings, " (max_position_embeddings)");
    if (settings.training_steps == 0)
        settings.training_steps = steps_within(here, settings, text.corpus, 60 * chosen.minutes);
    if (!last) settings.warmup_steps = std::min(settings.warmup_steps, settings.training_steps / 10);
    if (here.stop_requested()) return stopped_by_signal;

    stage model_stage{"model", shows};
    auto run = start<recipe>(here, settings);
    double peak = ops::product_peak(run.engine().queue());
    here.ranks().run(comm::all_reduce(&peak, 1).from("peak of products"));
    const planning::plan& plan = run.facts().plan;
    checkpoint::resume(run, chosen.run);
    model_stage.done(
        form("%.1fM parameters, %.1fM for a token; %.0f MiB planned; %s%d workers, products at %.0f GFLOP/s",
             static_cast<double>(plan.parameters) / 1e6, static_cast<double>(plan.activated_parameters) / 1e6,
             static_cast<double>(run.engine().arena_bytes()) / mebibyte,
             here.size() > 1 ? text_of(here.size(), " ranks of ").c_str() : "", run.engine().queue().workers_count(),
             peak / 1e9));
    if (last)
        here.print(text_of("going on    from step ", run.steps_done(), " of ", settings.training_steps,
                           run.finished() ? ": all done; --steps N for more, --fresh to start anew" : ""));

    const std::string log_path = chosen.log.empty() ? chosen.run + "/log.jsonl" : chosen.log;
    history past;
    std::optional<observe::log> log;
    if (shows) {
        past = go_on_with_log(log_path, run.steps_done());
        log.emplace(log_path);
    }
    training_text batches{run, text.corpus};
    if (!train(here, run, batches, chosen, peak, held_out.bigram_loss, shows ? &*log : nullptr, past))
        return stopped_by_signal;

    stage validation_stage{"validation", shows};
    const auto seen = evaluate(run, batches.order(), 0);
    const double bits = seen.cross_entropy * static_cast<double>(seen.targets) / std::log(2.0) / held_out.bytes;
    if (shows) {
        validation_stage.done(form("loss %.4f, %.4f bits a byte, on all %lld held-out tokens", seen.cross_entropy, bits,
                                   static_cast<long long>(seen.targets)));
        log->write("validation", {{"step", seen.step},
                                  {"cross_entropy", seen.cross_entropy},
                                  {"targets", seen.targets},
                                  {"bits_per_byte", bits},
                                  {"bigram", held_out.bigram_loss}});
        past.validation.push_back({static_cast<double>(seen.step), seen.cross_entropy});
        here.print(form(
            "           bigrams mixed with unigrams have %.4f: %s", held_out.bigram_loss,
            seen.cross_entropy < held_out.bigram_loss ? "beaten" : "NOT beaten, it needs more steps or more text"));
        write_curve(chosen, past, settings, held_out.bigram_loss);
    }
    stage save_stage{"saved", shows};
    train::save_pretrained(run.engine(), run.facts().config, text.tokenizer, chosen.run + "/model");
    save_stage.done(text_of(chosen.run, "/model for Hugging Face transformers, ", chosen.run, "/loss.html"));
    if (shows) sample(run, text, given, chosen);
    return 0;
}

}  // namespace pretrain

int main(int argc, char** argv) {
    pretrain::options chosen;
    try {
        chosen = pretrain::read_options(argc, argv);
    } catch (const fathom::error& problem) {
        std::fprintf(stderr, "./dev train: %s\n", problem.what());
        return 2;
    }
    if (chosen.help) return std::fputs(pretrain::help_text().c_str(), stdout) < 0;
    return fathom::launch<pretrain::machine>(chosen.threads,
                                             [&](fathom::world& here) { return pretrain::pretrain(here, chosen); });
}
