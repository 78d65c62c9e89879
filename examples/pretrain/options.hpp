// What `./dev train` is asked on its command line.
#pragma once

#include <fathom/core/bytes.hpp>
#include <fathom/train/settings.hpp>
#include <string>
#include <vector>

namespace pretrain {

struct options {
    // Text
    std::vector<std::string> data;  // files and directories; none: the headers of this machine
    double data_limit = 20;         // MB taken from directories
    std::string tokenizer;          // a tokenizer.json; none: one is trained
    // Run
    fathom::integer threads = 0;  // ranks that are threads of this process; 0: one rank, or those of an MPI launcher
    std::string run = "runs/tiny";
    bool fresh = false;
    double minutes = 3;
    fathom::integer steps = 0;       // 0: as many as fit into the minutes
    fathom::integer stop_after = 0;  // steps of this call; 0: all
    fathom::integer evaluate_every = 0;
    fathom::integer save_every = 200;
    std::string log;               // none: log.jsonl in the run
    std::vector<std::string> set;  // name=value of run_settings
    // Samples
    std::vector<std::string> prompts;
    fathom::integer sample_tokens = 128;
    double temperature = 0.7, top_p = 0.95;

    bool help = false;
};

/// Errors: an option that is not known, a value that is missing or does not read, a setting that is not known.
[[nodiscard]] options read_options(int count, char** words);

/// What --help prints.
[[nodiscard]] std::string help_text();

/// The settings that a run has before the command line changes any: those that suit a small model and a few minutes.
[[nodiscard]] fathom::run_settings usual_settings();

}  // namespace pretrain
