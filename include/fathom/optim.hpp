// The front door of the room in which weights move: schedules, clipping, AdamW.
#pragma once

#include <fathom/optim/adamw.hpp>                   // IWYU pragma: export
#include <fathom/optim/decay.hpp>                   // IWYU pragma: export
#include <fathom/optim/gradient_norm.hpp>           // IWYU pragma: export
#include <fathom/optim/learning_rate_schedule.hpp>  // IWYU pragma: export
#include <fathom/optim/step_state.hpp>              // IWYU pragma: export
#include <fathom/optim/update.hpp>                  // IWYU pragma: export
#include <fathom/optim/words.hpp>                   // IWYU pragma: export
