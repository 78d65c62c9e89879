// A bound on a recipe's memory that says by itself what it found and what to change.
#pragma once

#include <fathom/recipe/plan.hpp>

namespace fathom {

/// Numbers of bytes, so that the notes after an error name them.
template <integer Bytes> struct needs { static constexpr integer value = Bytes; };
template <integer Bytes> struct budget { static constexpr integer value = Bytes; };

namespace rule {

template <class Needs, class Budget> struct memory_is_within_its_budget {
    static_assert(Needs::value <= Budget::value,
                  "fathom: the recipe needs more memory than its budget. fix: lower micro_batch<N> or "
                  "sequence_length<N>, recompute more (recompute<norms, up_projections, swiglu> or recompute<blocks>), "
                  "keep weights<bf16>, or raise the budget.");
    static constexpr bool holds = true;
};

}  // namespace rule

/// static_assert(fits_in<recipe, 2_GiB>): what bytes_per_rank<recipe> gives is within the budget.
template <class Recipe, integer Budget, integer Workers = 4>
inline constexpr bool fits_in =
    rule::memory_is_within_its_budget<needs<bytes_per_rank<Recipe>(host_workers<Workers>{})>, budget<Budget>>::holds;

}  // namespace fathom
