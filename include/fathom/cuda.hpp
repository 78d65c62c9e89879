// The door for programs that put work on GPUs: it needs none of CUDA's headers, and its library only when it is used;
// it is in no other door.
#pragma once

#include <fathom/device/cuda/access.hpp>         // IWYU pragma: export
#include <fathom/device/cuda/event.hpp>          // IWYU pragma: export
#include <fathom/device/cuda/gpu.hpp>            // IWYU pragma: export
#include <fathom/device/cuda/graph.hpp>          // IWYU pragma: export
#include <fathom/device/cuda/memory.hpp>         // IWYU pragma: export
#include <fathom/device/cuda/pinned_memory.hpp>  // IWYU pragma: export
#include <fathom/device/cuda/queue.hpp>          // IWYU pragma: export
#include <fathom/device/cuda/readback.hpp>       // IWYU pragma: export
#include <fathom/device/cuda/runtime.hpp>        // IWYU pragma: export
#include <fathom/device/cuda/stream.hpp>         // IWYU pragma: export
