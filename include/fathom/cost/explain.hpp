// A recipe's plan as a page for people: what each rank holds and how long, what a step computes, and what would fit.
#pragma once

#include <cstdio>
#include <fathom/core/text_of_bytes.hpp>
#include <fathom/cost/flops_of_stage.hpp>
#include <fathom/cost/traffic_per_step.hpp>
#include <fathom/parallel/schedule/built.hpp>
#include <fathom/recipe/plan.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace fathom {

namespace detail {

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
    page += text_of("A rank holds ", plan.bytes, " bytes (", text_of_bytes(plan.bytes), "):\n");
    for (integer i = 0; i < plan.memory.count; ++i)
        page += detail::line_of_item(plan.memory.items[static_cast<std::size_t>(i)], plan.bytes);
    if (budget <= 0) return page;
    if (plan.bytes <= budget) return page + text_of("It fits in ", text_of_bytes(budget), ".\n");
    page += text_of("It does not fit in ", text_of_bytes(budget), ": ", text_of_bytes(plan.bytes - budget),
                    " too much. What would:\n");
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
        page += text_of("  ", attempt.change, ": ", text_of_bytes(attempt.bytes), "\n");
        any_fits = true;
    }
    if (!any_fits)
        page +=
            text_of("  none of recomputation and micro_batch<1> (", text_of_bytes(tries[4].bytes),
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

/// A layout of a model on paper: the pipeline's bubble, FLOPs and bytes of each of its ranks with one worker, bytes by
/// item of the one that needs most, and what the one that sends most hands to others in a step. A function of numbers:
/// one more layout of a kind of model costs the compiler nothing.
template <class Transformer>
std::string explain(const Transformer& whole, const planning::planned_layout& layout, const schedule::built* pipeline) {
    const degrees& mesh = layout.mesh;
    schedule::table table;
    if (pipeline != nullptr) table = pipeline->view();
    const schedule::table* const at = pipeline != nullptr ? &table : nullptr;
    std::string stages;
    planning::plan largest;
    cost::traffic most;
    for (integer rank = 0; rank < mesh.pp; ++rank) {
        const auto planned = planning::rank_of(whole, layout, at, rank);
        const planning::plan plan = planning::lower(whole, planned.shape, planned.share);
        const cost::traffic traffic = cost::traffic_at(whole, layout, at, rank);
        if (plan.bytes > largest.bytes) largest = plan;
        if (traffic.even().total() > most.even().total()) most = traffic;
        std::string blocks;
        double flops = 0;
        for (integer c = 0; c < planned.share.held.count; ++c) {
            const models::stage& held = planned.share.held[c];
            integer times = layout.micro_batches;
            if (at != nullptr) times /= at->shape.way == schedule::route::two_way ? 2 : 1;
            flops += static_cast<double>(times) * cost::flops_of_stage(whole, held, layout.batch);
            const models::stage part = planned.share.held.part(c, 0, whole.layers());
            blocks +=
                text_of(c > 0 ? ", " : "", part.first, "-", part.first + part.count - 1, held.head ? " head" : "");
        }
        char line[160];
        std::snprintf(line, sizeof line, "  %-6lld %-30s %12s %14s %12s\n", static_cast<long long>(rank),
                      blocks.c_str(), text_of_bytes(plan.bytes).c_str(),
                      text_of_count(flops / static_cast<double>(mesh.tp * mesh.cp)).c_str(),
                      text_of_bytes(traffic.even().total()).c_str());
        stages += line;
    }
    const double replicas_micro_batches = static_cast<double>(mesh.dp * layout.micro_batches);
    std::string page = text_of("A model of ", largest.parameters, " parameters on ", mesh.ranks(),
                               " ranks: ", text_of_mesh(mesh), ", ZeRO-", layout.zero, ".\n");
    page += text_of("A step of ", layout.micro_batches, " micro-batches of ", layout.batch.sequences, " x ",
                    layout.batch.length, " a replica is ", mesh.dp * layout.micro_batches * layout.batch.tokens(),
                    " tokens and ", text_of_count(replicas_micro_batches * largest.flops), "FLOP.\n");
    if (mesh.pp > 1) {
        const schedule::proof& proof = pipeline->proof();
        const double idle = proof.most(&schedule::rank_figures::idle);
        char percent[16];
        std::snprintf(percent, sizeof percent, "%.2f", 100 * idle / proof.time);
        page += text_of("Under ", pipeline->name(), " a rank idles at most ", idle, " of ", proof.time,
                        " (a forward is 1, a backward 2): a bubble of ", percent, " %.\n");
    }
    page += "  stage  blocks                                bytes  FLOP of step  handed over\n" + stages;
    page += text_of("The rank that needs most holds ", largest.bytes, " bytes (", text_of_bytes(largest.bytes),
                    ") with one worker:\n");
    for (integer i = 0; i < largest.memory.count; ++i)
        page += line_of_item(largest.memory.items[static_cast<std::size_t>(i)], largest.bytes);
    page += text_of("The rank that sends most hands ", text_of_bytes(most.even().total()),
                    " to others in a step, with even loads of experts:\n");
    return page + table_of_traffic(most);
}

}  // namespace detail

/// A recipe on N replicas with M micro-batches a step, as detail::explain of layouts says it.
template <class Recipe, integer N, integer M> std::string explain(dp<N>, micro_batches<M>) {
    constexpr auto whole = planning::transformer_of<Recipe>();
    constexpr planning::planned_layout layout = planning::layout_of<Recipe>(planning::start_of<N, M>{});
    if constexpr (Recipe::split) {
        const schedule::built pipeline = schedule::built::of<typename Recipe::pipeline_schedule>(
            static_cast<int>(layout.mesh.pp), static_cast<int>(layout.micro_batches));
        return detail::explain(whole, layout, &pipeline);
    } else {
        return detail::explain(whole, layout, nullptr);
    }
}

}  // namespace fathom
