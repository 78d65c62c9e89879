// The command line of the trainer: one table that both reading and --help go by.
#include "options.hpp"

#include <getopt.h>

#include <charconv>
#include <cmath>
#include <fathom/core/error.hpp>
#include <string_view>

namespace pretrain {

namespace {

using fathom::fail, fathom::integer;

/// One option: where its value goes, and what --help says of it.
struct known_option {
    const char* name;
    const char* value;  // what stands for it in --help; nullptr: it has none
    void (*take)(options&, const char* name, const std::string&);
    const char* what;
};

template <class Number> Number number_of(const char* name, const std::string& text, Number least) {
    Number read{};
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), read);
    if (problem != std::errc{} || end != text.data() + text.size() || !(read >= least) ||
        !std::isfinite(static_cast<double>(read)))
        fail("--", name, ": found \"", text, "\", expected a", std::is_integral_v<Number> ? " whole" : "",
             " number of at least ", least);
    return read;
}

constexpr known_option known[] = {
    {"data", "PATH...", [](options& o, const char*, const std::string& v) { o.data.push_back(v); },
     "text to learn: files, taken whole, and directories, searched for text files; default: the C++ headers of this "
     "machine's compiler"},
    {"data-limit", "MB", [](options& o, const char* n, const std::string& v) { o.data_limit = number_of(n, v, 0.001); },
     "how much text is taken from directories, and how much a tokenizer is trained on (20)"},
    {"tokenizer", "FILE", [](options& o, const char*, const std::string& v) { o.tokenizer = v; },
     "a tokenizer.json (byte-level BPE) of at most the model's vocabulary; default: one is trained on the text"},
    {"run", "DIR", [](options& o, const char*, const std::string& v) { o.run = v; },
     "folder of the run (runs/tiny): text as tokens, tokenizer, saves, log, loss curve, and the model in the end"},
    {"threads", "N", [](options& o, const char* n, const std::string& v) { o.threads = number_of(n, v, integer{1}); },
     "ranks, which share each batch and are threads of one process; a step then takes N times as many sequences. The "
     "processors are shared out among them. ./dev train --processes N starts ranks that are processes, over MPI"},
    {"fresh", nullptr, [](options& o, const char*, const std::string&) { o.fresh = true; },
     "remove the saves of the run and start anew; without it a run goes on from its last save"},
    {"minutes", "M", [](options& o, const char* n, const std::string& v) { o.minutes = number_of(n, v, 0.01); },
     "time to train (3): a few steps are timed, and the schedule is laid over as many as fit; the run keeps their "
     "number"},
    {"steps", "N", [](options& o, const char* n, const std::string& v) { o.steps = number_of(n, v, integer{1}); },
     "steps of the whole run instead of --minutes, so that two runs are equal; also --set training_steps=N"},
    {"stop-after", "N",
     [](options& o, const char* n, const std::string& v) { o.stop_after = number_of(n, v, integer{1}); },
     "save and stop after N steps of this call, as Ctrl-C does"},
    {"evaluate-every", "N",
     [](options& o, const char* n, const std::string& v) { o.evaluate_every = number_of(n, v, integer{1}); },
     "steps between losses on part of the held-out text (an eighth of the run)"},
    {"save-every", "N",
     [](options& o, const char* n, const std::string& v) { o.save_every = number_of(n, v, integer{1}); },
     "steps between saves (200); the last two are kept"},
    {"log", "FILE", [](options& o, const char*, const std::string& v) { o.log = v; },
     "JSON lines, one a step and one an evaluation (log.jsonl in the run)"},
    {"set", "NAME=VALUE...", [](options& o, const char*, const std::string& v) { o.set.push_back(v); },
     "change settings of the run, listed below"},
    {"prompt", "TEXT", [](options& o, const char*, const std::string& v) { o.prompts.push_back(v); },
     "a text that the trained model goes on with, again for more; default: pieces of the held-out text"},
    {"sample-tokens", "N",
     [](options& o, const char* n, const std::string& v) { o.sample_tokens = number_of(n, v, integer{0}); },
     "length of such a sample (128); 0: none"},
    {"temperature", "T", [](options& o, const char* n, const std::string& v) { o.temperature = number_of(n, v, 0.0); },
     "of sampling (0.7); 0 takes the likeliest token"},
    {"top-p", "P", [](options& o, const char* n, const std::string& v) { o.top_p = number_of(n, v, 0.0); },
     "of sampling (0.95): the share of likeliest tokens to draw from"},
    {"help", nullptr, [](options& o, const char*, const std::string&) { o.help = true; }, "this text"},
};

/// Words of `text` in lines of at most 100 columns, all but the first indented.
void wrap(std::string& out, std::string line, std::string_view text, std::size_t indent) {
    line.resize(std::max(indent, line.size() + 2), ' ');
    while (!text.empty()) {
        const std::string_view word = text.substr(0, text.find(' '));
        if (line.size() + word.size() > 100) {
            out += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
            line.assign(indent, ' ');
        }
        line += std::string{word} + ' ';
        text.remove_prefix(std::min(word.size() + 1, text.size()));
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
}

}  // namespace

fathom::run_settings usual_settings() {
    fathom::run_settings usual;
    usual.learning_rate = 1e-3;
    usual.warmup_steps = 50;
    usual.beta2 = 0.99;        // steadier over small batches
    usual.training_steps = 0;  // decided by --steps or --minutes
    usual.schedule = "wsd";
    return usual;
}

std::string help_text() {
    std::string text =
        "./dev train [OPTION...]\n\n"
        "Trains a small DeepSeek-V3 on text of this machine and shows how it learns. Ctrl-C saves (exit status 130);\n"
        "the same command again goes on. The last files of a run, in its folder: model/, which Hugging Face\n"
        "transformers opens, loss.html, samples.txt and log.jsonl.\n\n";
    for (const known_option& option : known)
        wrap(text, fathom::text_of("  --", option.name, option.value ? " " : "", option.value ? option.value : ""),
             option.what, 26);
    text += "\nSettings, with what they are here:\n";
    fathom::run_settings usual = usual_settings();
    fathom::detail::each_setting(usual, [&](const char* name, const auto& value, const char* what) {
        std::string shown;
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, bool>)
            shown = value ? "true" : "false";
        else
            shown = fathom::text_of(value);
        if (std::string_view{name} == "training_steps") shown = "by --minutes";
        if (std::string_view{name} == "warmup_steps") shown += " at most";
        wrap(text, fathom::text_of("  ", name), fathom::text_of(what, " (", shown, ")"), 26);
    });
    return text;
}

options read_options(int count, char** words) {
    std::vector<option> table;
    for (const known_option& o : known)
        table.push_back({o.name, o.value ? required_argument : no_argument, nullptr, 0});
    table.push_back({});
    options chosen;
    const known_option* several = nullptr;  // the option whose values go on
    opterr = 0;
    for (int at = 0, found; (found = ::getopt_long(count, words, "-:h", table.data(), &at)) != -1;) {
        if (found == 'h') {
            chosen.help = true;
        } else if (found == 0) {
            known[at].take(chosen, known[at].name, optarg ? optarg : "");
            several = known[at].value && std::string_view{known[at].value}.ends_with("...") ? &known[at] : nullptr;
        } else if (found == 1 && several) {
            several->take(chosen, several->name, optarg);
        } else if (found == ':') {
            fail(words[optind - 1], ": found no value, expected one; see --help");
        } else {
            fail("found the argument ", found == 1 ? optarg : words[optind - 1], ", expected an option; see --help");
        }
    }
    if (optind < count) fail("found the argument ", words[optind], ", expected an option; see --help");
    fathom::run_settings probe;
    for (const std::string& assignment : chosen.set) fathom::set(probe, assignment);
    fathom::check(probe);
    if (chosen.top_p <= 0 || chosen.top_p > 1) fail("--top-p: found ", chosen.top_p, ", expected above 0, at most 1");
    return chosen;
}

}  // namespace pretrain
