// One program for several numbers of ranks: the recipe that fits the world is picked at the start.
#pragma once

#include <algorithm>
#include <fathom/parallel/mesh_ranks.hpp>
#include <fathom/train/run.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace fathom {

namespace rule {

template <class... Recipes> struct each_recipe_can_be_picked {
    static_assert(sizeof...(Recipes) > 0, "fathom: any_of<> has no recipe. fix: name at least one.");
    static_assert(
        [] {
            const mesh_ranks all[] = {mesh_ranks_of<typename Recipes::layout>()..., mesh_ranks{}};
            for (std::size_t i = 0; i < sizeof...(Recipes); ++i)
                for (std::size_t j = 0; j < i; ++j)
                    if (all[j].cover(all[i])) return false;
            return true;
        }(),
        "fathom: a recipe of any_of<> is never picked, since one before it fits every number of ranks that fits it. "
        "fix: put recipes with fewer possible numbers first, and keep one for each number.");
};

}  // namespace rule

/// Recipes in the order in which they are asked: the first whose mesh has the world's number of ranks is the one.
template <class... Recipes> struct any_of : rule::each_recipe_can_be_picked<Recipes...> {
    /// The place of the recipe that fits, or their number.
    static constexpr std::size_t place_for(integer ranks) {
        constexpr mesh_ranks all[] = {mesh_ranks_of<typename Recipes::layout>()...};
        std::size_t place = 0;
        while (place < sizeof...(Recipes) && !all[place].fit(ranks)) ++place;
        return place;
    }
    /// Errors: a number of ranks that fits none; says what would.
    static void require_ranks(const world& here) {
        if (place_for(here.size()) == sizeof...(Recipes))
            refuse(here.size(), {mesh_ranks_of<typename Recipes::layout>()...});
    }
    /// call(std::type_identity<Recipe>) with the recipe that fits. Errors: as require_ranks.
    template <class Call> static decltype(auto) pick(const world& here, Call&& call) {
        require_ranks(here);
        return pick_at<Call, Recipes...>(place_for(here.size()), call);
    }

  private:
    template <class Call, class First, class... Rest> static decltype(auto) pick_at(std::size_t place, Call& call) {
        if constexpr (sizeof...(Rest) > 0)
            if (place > 0) return pick_at<Call, Rest...>(place - 1, call);
        return call(std::type_identity<First>{});
    }
    [[noreturn]] static void refuse(integer found, const std::vector<mesh_ranks>& all) {
        std::vector<integer> near;
        std::string wanted;
        for (const mesh_ranks& each : all) {
            const integer below = each.any_dp ? found / each.each() * each.each() : each.each();
            if (below > 0) near.push_back(below);
            if (each.any_dp) near.push_back(below + each.each());
            wanted += (wanted.empty() ? "" : ", or ") + each.text();
        }
        std::sort(near.begin(), near.end());
        near.erase(std::unique(near.begin(), near.end()), near.end());
        std::string numbers;
        for (const integer ranks : near) numbers += text_of(numbers.empty() ? "" : ", ", ranks);
        fail("found ", found, found == 1 ? " rank" : " ranks", ", which no recipe is for; expected ", wanted,
             "; would fit: ", numbers, " (--threads N or mpirun -n N)");
    }
};

/// Starts a run of the recipe that fits the world and gives body(run)'s result. A run's type differs from recipe to
/// recipe: body is `[&](auto& run) { ... }`, and its results are of one type. Errors: as start<Recipe>; a world that
/// fits none.
template <class AnyOf, class Body> auto start(world& all, const run_settings& settings, Body&& body) {
    return AnyOf::pick(all, [&]<class Recipe>(std::type_identity<Recipe>) {
        auto run = start<Recipe>(all, settings);
        return body(run);
    });
}

}  // namespace fathom
