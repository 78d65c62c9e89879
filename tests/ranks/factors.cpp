// What is not a degree changes no number either: ZeRO, schedules, micro-batches, recomputation, masks, losses and
// loads, every pair of them in some run, and with --all everything with everything.
#include <cstdio>
#include <cstdlib>
#include <fathom/parallel/schedule/words.hpp>
#include <optional>
#include <set>

#include "layout_runs.hpp"

namespace fathom::test {
namespace {

using runs = layout_runs<models::latent_family, double>;

struct named_schedule {
    const char* name;
    schedule::built (*make)(int, int);
    bool (*fits)(integer, integer);
    integer chunks;
    bool two_way;
};
template <class Schedule>
constexpr named_schedule of_schedule{Schedule::name, &schedule::built::of<Schedule>, &Schedule::fits, Schedule::chunks,
                                     Schedule::way == schedule::route::two_way};
constexpr named_schedule schedules[] = {
    of_schedule<schedule::one_f_one_b>, of_schedule<schedule::gpipe>, of_schedule<schedule::interleaved_one_f_one_b<2>>,
    of_schedule<schedule::zb_h1>,       of_schedule<schedule::zb_v>,  of_schedule<schedule::dual_pipe>,
    of_schedule<schedule::dual_pipe_v>};

constexpr degrees meshes[] = {{.dp = 2, .pp = 2},
                              {.pp = 4},
                              {.dp = 2, .tp = 2, .ep = 2},
                              {.pp = 2, .tp = 2, .cp = 2},
                              {.dp = 2, .cp = 2, .ep = 4},
                              {.pp = 2, .tp = 2, .ep = 2},
                              {.dp = 2, .tp = 2, .ep = 2, .etp = 2},
                              {.pp = 2, .cp = 2, .ep = 2},
                              {.dp = 4, .pp = 2, .ep = 4}};

constexpr nn::recomputation recomputations[] = {
    {}, {.norms = true, .up_projections = true}, {.swiglu = true}, {.blocks = true}};

/// The choices of a run, one number a factor.
enum factor { mesh, zero, plan, micro_batches, recomputed, depths, tied, packed, ragged, balance, load, factors_count };
constexpr int levels[] = {9, 4, 7, 5, 4, 3, 2, 2, 2, 2, 3};
using choice = std::array<int, factors_count>;

integer micro_batches_of(int level) {
    constexpr integer counts[] = {1, 2, 3, 4, 8};
    return counts[level];
}
bool is_possible(const choice& c, const degrees& d) {
    const named_schedule& s = schedules[c[plan]];
    if (d.pp == 1 && (s.chunks > 1 || s.two_way)) return false;
    return s.fits(d.pp, micro_batches_of(c[micro_batches])) && (d.pp * (s.two_way ? 1 : s.chunks) <= 8);
}
bool is_possible(const choice& c) { return is_possible(c, meshes[c[mesh]]); }

/// Choices in which every two levels of two factors that can be together are: each new one covers as many new pairs as
/// a greedy walk finds.
std::vector<choice> pairwise() {
    std::set<std::array<int, 4>> missing;
    const auto each_pair = [](const choice& c, auto&& call) {
        for (int a = 0; a < factors_count; ++a)
            for (int b = a + 1; b < factors_count; ++b)
                call(std::array<int, 4>{a, c[static_cast<std::size_t>(a)], b, c[static_cast<std::size_t>(b)]});
    };
    const random_stream drawn{1, 1};
    std::uint64_t next = 0;
    const auto draw = [&] {
        choice c{};
        for (int f = 0; f < factors_count; ++f)
            c[static_cast<std::size_t>(f)] = static_cast<int>(drawn.uniform(next++) * levels[f]);
        return c;
    };
    for (int i = 0; i < 200'000; ++i)
        if (const choice c = draw(); is_possible(c)) each_pair(c, [&](const auto& pair) { missing.insert(pair); });
    std::vector<choice> all;
    while (!missing.empty()) {
        choice best{};
        std::size_t most = 0;
        for (int tries = 0; tries < 3000 || most == 0; ++tries) {
            choice c = draw();
            // Begin with a pair that is missing, so that the walk ends.
            const auto& pair = *missing.begin();
            c[static_cast<std::size_t>(pair[0])] = pair[1];
            c[static_cast<std::size_t>(pair[2])] = pair[3];
            if (!is_possible(c)) continue;
            std::size_t covered = 0;
            each_pair(c, [&](const auto& p) { covered += missing.count(p); });
            if (covered > most) most = covered, best = c;
        }
        each_pair(best, [&](const auto& p) { missing.erase(p); });
        all.push_back(best);
    }
    return all;
}

std::string text_of_choice(const choice& c, const degrees& d) {
    return text_of(text_of_layout({.mesh = d, .zero = c[zero]}), ' ', schedules[c[plan]].name, ", micro-batches ",
                   micro_batches_of(c[micro_batches]), ", recomputed ", c[recomputed], ", depths ", c[depths],
                   c[tied] != 0 ? ", tied" : "", c[packed] != 0 ? ", packed" : "", c[ragged] != 0 ? ", ragged" : "",
                   ", balance ", c[balance], ", load ", c[load]);
}

/// What of a choice is not its layout; the last micro-batch is half full.
run_factors factors_of(const choice& c, integer replicas, integer layers, integer steps) {
    run_factors f;
    f.config.num_hidden_layers = layers;
    f.config.num_nextn_predict_layers = c[depths];
    f.config.tie_word_embeddings = c[tied] != 0;
    f.again = recomputations[c[recomputed]];
    f.packed = c[packed] != 0;
    f.ragged = c[ragged] != 0;
    f.balance = c[balance] != 0 ? 0.05 : 0;
    f.load = static_cast<run_factors::routing>(c[load]);
    f.choices.expert_tokens = 1;  // so that a rank with more than its share works it off in further rounds
    f.sequences = replicas * (micro_batches_of(c[micro_batches]) * runs::shape.sequences - 1);
    f.steps = steps;
    return f;
}

train::layout_facts layout_of(const choice& c, const degrees& d, const run_factors& f) {
    const named_schedule& s = schedules[c[plan]];
    return {.mesh = d,
            .zero = c[zero],
            .schedule = s.make,
            .layers = stages_for(d.pp * (s.two_way ? 1 : s.chunks), f.config),
            .micro_batches = micro_batches_of(c[micro_batches])};
}

}  // namespace

TEST_CASE("factors: every pair of choices beside the degrees gives one rank's numbers") {
    const char* only = std::getenv("FATHOM_ONLY");
    integer count = 0;
    for (const choice& c : pairwise()) {
        const degrees& d = meshes[c[mesh]];
        const std::string text = text_of_choice(c, d);
        if (only != nullptr && text.find(only) == std::string::npos) continue;
        CAPTURE(text);
        const run_factors f = factors_of(c, d.dp, 7, 3);
        compare(runs::on(layout_of(c, d, f), f), runs::alone(f), c[zero] == 0);
        ++count;
    }
    MESSAGE(count, " runs");
    if (only == nullptr) CHECK(count >= 40);
}

TEST_SUITE("all") {
    // Degrees take turns: the mesh of a run is the next one that its schedule fits. FATHOM_SHARE=k/n takes every n-th
    // model and batch from the k-th on, FATHOM_ONLY what its words name.
    TEST_CASE("factors: all choices beside the degrees, each with each, give one rank's numbers") {
        constexpr degrees turns[] = {{.dp = 2, .pp = 2},
                                     {.pp = 2, .tp = 2, .ep = 2},
                                     {.pp = 2, .cp = 2, .ep = 2},
                                     {.dp = 2, .tp = 2, .ep = 4},
                                     {.dp = 2, .pp = 2, .ep = 2}};
        constexpr std::size_t turns_count = std::size(turns);
        const char* only = std::getenv("FATHOM_ONLY");
        int share = 0, shares = 1;
        if (const char* text = std::getenv("FATHOM_SHARE")) REQUIRE(std::sscanf(text, "%d/%d", &share, &shares) == 2);
        // A batch and model is run alone once for all layouts.
        constexpr std::array of_model{micro_batches, depths, tied, packed, ragged, balance, load};
        constexpr std::array of_layout{zero, plan, recomputed};
        const auto counted = [](const auto& which) {
            integer product = 1;
            for (const factor f : which) product *= f == micro_batches ? 4 : levels[f];
            return product;
        };
        const auto chosen = [](const auto& which, integer number, choice c) {
            for (const factor f : which) {
                const int count = f == micro_batches ? 4 : levels[f];
                c[static_cast<std::size_t>(f)] = static_cast<int>(number % count);
                number /= count;
            }
            return c;
        };
        integer count = 0;
        std::size_t turn = 0;
        for (integer m = share; m < counted(of_model); m += shares) {
            std::map<integer, history> alone;  // by replicas, which the batch grows with
            for (integer l = 0; l < counted(of_layout); ++l) {
                const choice c = chosen(of_layout, l, chosen(of_model, m, {}));
                std::optional<degrees> d;
                for (std::size_t tries = 0; tries < turns_count && !d; ++tries, ++turn)
                    if (is_possible(c, turns[turn % turns_count])) d = turns[turn % turns_count];
                if (!d) continue;
                const std::string text = text_of_choice(c, *d);
                if (only != nullptr && text.find(only) == std::string::npos) continue;
                CAPTURE(text);
                const run_factors f = factors_of(c, d->dp, 4, 2);
                if (alone.count(d->dp) == 0)
                    alone.emplace(d->dp, runs::alone(factors_of(chosen(of_model, m, {}), d->dp, 4, 2)));
                compare(runs::on(layout_of(c, *d, f), f), alone.at(d->dp), c[zero] == 0);
                if (++count % 1000 == 0)
                    std::fprintf(stderr, "%ld runs, model %ld of %ld\n", count, m, counted(of_model));
            }
        }
        MESSAGE(count, " runs");
        if (only == nullptr) CHECK(count > 0);
    }
}

}  // namespace fathom::test
