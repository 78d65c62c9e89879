// Prints what a pipeline schedule costs and keeps, and draws it.
#include <charconv>
#include <cmath>
#include <cstdio>
#include <exception>
#include <fathom/core/file.hpp>
#include <fathom/parallel/schedule.hpp>
#include <string>
#include <string_view>

#include "schedules/picture.hpp"

namespace {

constexpr const char* help =
    R"(schedules NAME --ranks P --micro-batches M [--costs F,B,W,FB] [--svg FILE]

Prints time, bubble and what each rank keeps of a pipeline schedule, and draws it as a timeline.
NAME: gpipe, one_f_one_b, interleaved_one_f_one_b<V>, zb_h1, zb_v, dual_pipe or dual_pipe_v.

  --ranks P            ranks of the pipeline
  --micro-batches M    micro-batches of a step
  --costs F,B,W,FB     time of a forward, of a backward with both gradients, of the weights' gradient in it, and of a
                       forward and a backward overlapped, in one chunk (1,2,1,3)
  --svg FILE           write the picture
)";

using namespace fathom;

struct options {
    std::string name, svg;
    int ranks = 0, micro_batches = 0;
    schedule::costs costs;
};

/// Reads a number of at least 0 and nothing else.
template <class Number> bool read(std::string_view text, Number& n) {
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), n);
    return problem == std::errc{} && end == text.data() + text.size() && n >= 0 &&
           std::isfinite(static_cast<double>(n));
}

int count_of(std::string_view option, std::string_view text) {
    int n = 0;
    if (!read(text, n)) fail("schedules: found ", option, " ", text, ", expected a whole number");
    return n;
}

schedule::costs costs_of(std::string_view text) {
    schedule::costs costs;
    std::string_view rest = text;
    bool good = true;
    for (double* field : {&costs.forward, &costs.backward, &costs.weight, &costs.overlapped}) {
        const std::size_t comma = field == &costs.overlapped ? rest.npos : rest.find(',');
        good = good && read(rest.substr(0, comma), *field);
        rest.remove_prefix(comma == rest.npos ? rest.size() : comma + 1);
    }
    if (!good || costs.weight > costs.backward || costs.forward == 0 || costs.backward == 0)
        fail("schedules: found --costs ", text,
             ", expected four numbers F,B,W,FB of at least 0, F and B above 0, W at most B");
    return costs;
}

options read(int count, char** words) {
    options chosen;
    for (int i = 1; i < count; ++i) {
        const std::string_view word = words[i];
        const auto value = [&]() -> std::string_view {
            if (i + 1 == count) fail("schedules: found no value of ", word, "; see --help");
            return words[++i];
        };
        if (word == "--ranks")
            chosen.ranks = count_of(word, value());
        else if (word == "--micro-batches")
            chosen.micro_batches = count_of(word, value());
        else if (word == "--costs")
            chosen.costs = costs_of(value());
        else if (word == "--svg")
            chosen.svg = value();
        else if (chosen.name.empty() && !word.starts_with("-"))
            chosen.name = word;
        else
            fail("schedules: found the argument ", word, "; see --help");
    }
    if (chosen.name.empty() || chosen.ranks == 0 || chosen.micro_batches == 0)
        fail("schedules: expected NAME --ranks P --micro-batches M; see --help");
    return chosen;
}

void print(const schedule::table& t, const schedule::proof& proof) {
    const double idle = proof.most(&schedule::rank_figures::idle);
    std::printf("%d ranks, %d micro-batches, %d chunk%s a rank, %d stages%s\n", t.shape.ranks, t.shape.micro_batches,
                t.shape.chunks, t.shape.chunks == 1 ? "" : "s", t.shape.stages(),
                t.shape.way == schedule::route::two_way ? ", two copies of the parameters" : "");
    std::printf("time %g, of which a rank idles at most %g (%.1f %%); %g when every exchange is waited for\n",
                proof.time, idle, proof.time > 0 ? 100 * idle / proof.time : 0, proof.time_in_step);
    std::printf("\nrank  activations  deferred  exchanged      busy      idle    inside\n");
    for (int rank = 0; rank < t.shape.ranks; ++rank) {
        const schedule::rank_figures& r = proof.ranks[static_cast<std::size_t>(rank)];
        std::printf("%4d  %11d  %8d  %9d  %8g  %8g  %8g\n", rank, r.activations, r.deferred, r.exchanged, r.busy,
                    r.idle, r.idle_inside);
    }
    std::printf(
        "\nactivations: most alive from forward to the input's gradient; deferred: from there to the weights' "
        "gradient;\n"
        "exchanged: most tensors under way or waiting; inside: idle between a rank's first and last action.\n");
}

}  // namespace

int main(int argc, char** argv) try {
    for (int i = 1; i < argc; ++i)
        if (std::string_view word = argv[i]; word == "--help" || word == "-h") return std::fputs(help, stdout) < 0;
    const options chosen = read(argc, argv);
    const auto made = schedule::built::named(chosen.name, chosen.ranks, chosen.micro_batches);
    const schedule::proof proof = schedule::prove(made.view(), chosen.costs);
    print(made.view(), proof);
    if (!chosen.svg.empty()) write_atomically(chosen.svg, schedules::picture(made, proof, chosen.costs));
    return 0;
} catch (const std::exception& wrong) {
    std::fprintf(stderr, "%s\n", wrong.what());
    return 1;
}
