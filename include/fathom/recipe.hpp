// The front door of the room in which a training step becomes a plan.
#pragma once

#include <fathom/recipe/budget.hpp>     // IWYU pragma: export
#include <fathom/recipe/plan.hpp>       // IWYU pragma: export
#include <fathom/recipe/precision.hpp>  // IWYU pragma: export
#include <fathom/recipe/training.hpp>   // IWYU pragma: export
