// The front door of the room of what people watch: progress, memory, logs, curves.
#pragma once

#include <fathom/observe/duration.hpp>     // IWYU pragma: export
#include <fathom/observe/free_memory.hpp>  // IWYU pragma: export
#include <fathom/observe/log.hpp>          // IWYU pragma: export
#include <fathom/observe/loss_curve.hpp>   // IWYU pragma: export
#include <fathom/observe/memory.hpp>       // IWYU pragma: export
#include <fathom/observe/progress.hpp>     // IWYU pragma: export
