// A recipe's plan as a page for people: what each rank holds and how long, what a step computes, and what would fit.
#pragma once

#include <cstdio>
#include <fathom/recipe/plan.hpp>
#include <string>

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
    if (item.count > 1)
        std::snprintf(name, sizeof name, item.lives == lifetime::call ? "%s (%lld)" : "%s %lld-%lld", item.name,
                      static_cast<long long>(item.lives == lifetime::call ? item.count : item.first),
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

}  // namespace fathom
