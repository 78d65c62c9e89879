// The front door of the room of what a recipe will cost.
#pragma once

#include <fathom/cost/explain.hpp>           // IWYU pragma: export
#include <fathom/cost/flops_of_stage.hpp>    // IWYU pragma: export
#include <fathom/cost/traffic.hpp>           // IWYU pragma: export
#include <fathom/cost/traffic_of.hpp>        // IWYU pragma: export
#include <fathom/cost/traffic_per_step.hpp>  // IWYU pragma: export
