// A recipe's plan as a page for people: what each rank holds and how long, what a step computes, and what would fit.
#pragma once

#include <cstdio>
#include <fathom/cost/flops_of_stage.hpp>
#include <fathom/cost/traffic_per_step.hpp>
#include <fathom/recipe/plan.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace fathom {

namespace detail {

inline std::string text_of_bytes(integer bytes) {
    static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double size = static_cast<double>(bytes);
    int unit = 0;
    for (; size >= 1024 && unit < 4; ++unit) size /= 1024;
    char text[32];
    std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", size, units[unit]);
    return text;
}

inline const char* text_of_lifetime(lifetime lives) {
    switch (lives) {
        case lifetime::run:
            return "the run";
        case lifetime::step:
            return "a step";
        case lifetime::saved:
            return "forward to backward";
        case lifetime::deferred:
            return "input to weight gradient";
        default:
            return "a call";
    }
}

/// One line of a table: an item, how long it lives, its bytes and its share.
inline std::string line_of_item(const arena_item& item, integer all) {
    char name[64], line[160];
    const std::string_view called = item.name;
    const bool of_layers = called == "blocks" || called == "multi-token prediction";
    if (item.count > 1)
        std::snprintf(name, sizeof name, of_layers ? "%s %lld-%lld" : "%s (%lld)", item.name,
                      static_cast<long long>(of_layers ? item.first : item.count),
                      static_cast<long long>(item.first + item.count - 1));
    else
        std::snprintf(name, sizeof name, "%s", item.name);
    std::snprintf(line, sizeof line, "  %-38s %-26s %12s %5.1f %%\n", name, text_of_lifetime(item.lives),
                  text_of_bytes(item.bytes).c_str(),
                  100.0 * static_cast<double>(item.bytes) / static_cast<double>(all));
    return line;
}

/// A change of a recipe that is tried when it does not fit: every one is lowered at compile time.
struct smaller_recipe {
    const char* change;
    integer bytes;
};

template <class Recipe> consteval integer bytes_with(nn::recomputation again, nn::extents batch) {
    constexpr auto config = Recipe::model::config();
    const auto model = Recipe::model::family::template transformer<typename Recipe::numbers::weights>(config, again);
    return planning::lower(model, {.batch = batch}).bytes;
}

}  // namespace detail

/// Bytes by item and lifetime, parameters and FLOPs of a recipe on one rank with 4 workers. With a budget in bytes
/// above 0 it also says whether the recipe fits, and when it doesn't, which changes would: what backward recomputes,
/// and the micro-batch.
template <class Recipe> std::string explain(integer budget = 0) {
    static constexpr planning::plan plan = planning::plan_of<Recipe>();
    std::string page = text_of("A model of ", plan.parameters, " parameters, ", plan.activated_parameters,
                               " of them used by a token.\n");
    page += text_of("A micro-batch of ", Recipe::batch.sequences, " x ", Recipe::batch.length, " tokens takes ",
                    plan.flops / 1e9, " GFLOP forward and backward (",
                    plan.flops / 1e6 / static_cast<double>(Recipe::batch.tokens()), " MFLOP a token).\n");
    page += text_of("A rank holds ", plan.bytes, " bytes (", detail::text_of_bytes(plan.bytes), "):\n");
    for (integer i = 0; i < plan.memory.count; ++i)
        page += detail::line_of_item(plan.memory.items[static_cast<std::size_t>(i)], plan.bytes);
    if (budget <= 0) return page;
    if (plan.bytes <= budget) return page + text_of("It fits in ", detail::text_of_bytes(budget), ".\n");
    page += text_of("It does not fit in ", detail::text_of_bytes(budget), ": ",
                    detail::text_of_bytes(plan.bytes - budget), " too much. What would:\n");
    constexpr nn::extents batch = Recipe::batch, single{1, Recipe::batch.length};
    constexpr nn::recomputation parts{.norms = true, .up_projections = true, .swiglu = true}, blocks{.blocks = true};
    static constexpr detail::smaller_recipe tries[] = {
        {"recompute<norms, up_projections, swiglu>", detail::bytes_with<Recipe>(parts, batch)},
        {"recompute<blocks>", detail::bytes_with<Recipe>(blocks, batch)},
        {"micro_batch<1>", detail::bytes_with<Recipe>(Recipe::again, single)},
        {"micro_batch<1> and recompute<norms, up_projections, swiglu>", detail::bytes_with<Recipe>(parts, single)},
        {"micro_batch<1> and recompute<blocks>", detail::bytes_with<Recipe>(blocks, single)},
    };
    bool any_fits = false;
    for (const auto& attempt : tries) {
        if (attempt.bytes > budget) continue;
        page += text_of("  ", attempt.change, ": ", detail::text_of_bytes(attempt.bytes), "\n");
        any_fits = true;
    }
    if (!any_fits)
        page +=
            text_of("  none of recomputation and micro_batch<1> (", detail::text_of_bytes(tries[4].bytes),
                    " at least): a smaller model",
                    sizeof(typename Recipe::numbers::weights) > 2 ? ", weights<bf16>" : "", " or a larger budget.\n");
    return page;
}

namespace detail {

/// A number for people, in powers of 1000: 1.5 T.
inline std::string text_of_count(double n) {
    static constexpr const char* units[] = {"", "k", "M", "G", "T", "P", "E"};
    int unit = 0;
    for (; n >= 1000 && unit < 6; ++unit) n /= 1000;
    char text[32];
    std::snprintf(text, sizeof text, "%.4g %s", n, units[unit]);
    return text;
}

inline std::string text_of_mesh(const degrees& d) {
    std::string text = text_of("dp ", d.dp);
    for (const auto& [name, degree] : {std::pair{"pp", d.pp}, {"tp", d.tp}, {"cp", d.cp}})
        if (degree > 1) text += text_of(" x ", name, " ", degree);
    for (const auto& [name, degree] : {std::pair{"ep", d.ep}, {"etp", d.etp}})
        if (degree > 1) text += text_of(", ", name, " ", degree);
    return text;
}

/// Who hands what to whom, a line for each kind of operation.
inline std::string table_of_traffic(const cost::traffic& t) {
    const cost::byte_table even = t.even(), most = t.most();
    std::string page;
    for (int i = 0; i < cost::among_count; ++i)
        for (int k = 0; k < comm::operations_count; ++k) {
            const auto ranks = static_cast<cost::among>(i);
            const auto kind = static_cast<comm::operation>(k);
            if (even(ranks, kind) == 0) continue;
            char line[160];
            std::snprintf(line, sizeof line, "  %-14s %-15s %12s %5.1f %%", cost::name_of(ranks), comm::name_of(kind),
                          text_of_bytes(even(ranks, kind)).c_str(),
                          100.0 * static_cast<double>(even(ranks, kind)) / static_cast<double>(even.total()));
            page += line;
            if (most(ranks, kind) > even(ranks, kind))
                page += text_of("  (at most ", text_of_bytes(most(ranks, kind)), ", if all tokens choose its experts)");
            page += "\n";
        }
    return page;
}

}  // namespace detail

/// A recipe on N replicas with M micro-batches a step: the pipeline's bubble, FLOPs and bytes of each of its ranks with
/// one worker, bytes by item of the one that needs most, and what the one that sends most hands to others in a step.
template <class Recipe, integer N, integer M> std::string explain(dp<N>, micro_batches<M>) {
    using start = planning::start_of<N, M>;
    static constexpr auto whole = planning::transformer_of<Recipe>();
    static constexpr degrees mesh = degrees_of<typename Recipe::layout>(N);
    static constexpr const planning::plan& largest = planning::plan_of_one<Recipe, start>;
    const double tokens = static_cast<double>(mesh.dp * M * Recipe::batch.tokens());
    std::string page = text_of("A model of ", largest.parameters, " parameters on ", mesh.ranks(),
                               " ranks: ", detail::text_of_mesh(mesh), ", ZeRO-", Recipe::zero_stage, ".\n");
    page += text_of("A step of ", M, " micro-batches of ", Recipe::batch.sequences, " x ", Recipe::batch.length,
                    " a replica is ", tokens, " tokens and ",
                    detail::text_of_count(static_cast<double>(mesh.dp * M) * largest.flops), "FLOP.\n");
    if constexpr (Recipe::split) {
        using pipeline = planning::schedule_at<Recipe, start>;
        static constexpr auto proof = schedule::proof_of<pipeline>;
        if constexpr (mesh.pp > 1) {
            const double idle = proof.most(&schedule::rank_figures::idle);
            page += text_of("Under ", pipeline::written::name, " a rank idles at most ", idle, " of ", proof.time,
                            " (a forward is 1, a backward 2): a bubble of ",
                            static_cast<double>(static_cast<integer>(1e4 * idle / proof.time + 0.5)) / 100, " %.\n");
        }
        page += "  rank of the pipeline    blocks              bytes   FLOP of a step   handed over\n";
        const schedule::shape& shape = schedule::table_of<pipeline>.shape;
        for (integer rank = 0; rank < mesh.pp; ++rank) {
            const auto held =
                models::stages_of(shape, static_cast<int>(rank), &Recipe::layers_of_stage, whole.layers());
            std::string blocks;
            double flops = 0;
            for (integer c = 0; c < held.count; ++c) {
                integer times = 0;
                for (int m = 0; m < shape.micro_batches; ++m)
                    times += shape.has(static_cast<int>(rank), static_cast<int>(c), m) ? 1 : 0;
                flops += static_cast<double>(times) * cost::flops_of_stage(whole, held[c], Recipe::batch);
                const models::stage s = held.part(c, 0, whole.layers());
                blocks += text_of(c > 0 ? ", " : "", s.first, "-", s.first + s.count - 1, held[c].head ? " head" : "");
            }
            char line[160];
            std::snprintf(line, sizeof line, "  %-23lld %-16s %12s %16s %13s\n", static_cast<long long>(rank),
                          blocks.c_str(), detail::text_of_bytes(planning::plan_at<Recipe>(start{}, rank).bytes).c_str(),
                          detail::text_of_count(flops / static_cast<double>(mesh.tp * mesh.cp)).c_str(),
                          detail::text_of_bytes(cost::traffic_at<Recipe>(start{}, rank).even().total()).c_str());
            page += line;
        }
    }
    page += text_of("The rank that needs most holds ", largest.bytes, " bytes (", detail::text_of_bytes(largest.bytes),
                    ") with one worker:\n");
    for (integer i = 0; i < largest.memory.count; ++i)
        page += detail::line_of_item(largest.memory.items[static_cast<std::size_t>(i)], largest.bytes);
    const cost::traffic most = cost::largest_traffic<Recipe>(start{});
    page += text_of("The rank that sends most hands ", detail::text_of_bytes(most.even().total()),
                    " to others in a step, with even loads of experts:\n");
    return page + detail::table_of_traffic(most);
}

}  // namespace fathom
