// The front door of the room of who executes: the host's memory, workers and queue.
#pragma once

#include <fathom/device/host/memory.hpp>   // IWYU pragma: export
#include <fathom/device/host/queue.hpp>    // IWYU pragma: export
#include <fathom/device/host/workers.hpp>  // IWYU pragma: export
