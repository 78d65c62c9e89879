// The front door of the room of when each thing happens: starting, steps, checkpoints, generation.
#pragma once

#include <fathom/train/any_of.hpp>        // IWYU pragma: export
#include <fathom/train/check_health.hpp>  // IWYU pragma: export
#include <fathom/train/checkpoint.hpp>    // IWYU pragma: export
#include <fathom/train/diagnose.hpp>      // IWYU pragma: export
#include <fathom/train/engine.hpp>        // IWYU pragma: export
#include <fathom/train/expert_loads.hpp>  // IWYU pragma: export
#include <fathom/train/generate.hpp>      // IWYU pragma: export
#include <fathom/train/held_slices.hpp>   // IWYU pragma: export
#include <fathom/train/launch.hpp>        // IWYU pragma: export
#include <fathom/train/pretrained.hpp>    // IWYU pragma: export
#include <fathom/train/run.hpp>           // IWYU pragma: export
#include <fathom/train/settings.hpp>      // IWYU pragma: export
