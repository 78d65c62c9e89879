// The front door of the room of how a run survives.
#pragma once

#include <fathom/checkpoint/assembled.hpp>    // IWYU pragma: export
#include <fathom/checkpoint/directory.hpp>    // IWYU pragma: export
#include <fathom/checkpoint/safetensors.hpp>  // IWYU pragma: export
#include <fathom/checkpoint/sharded.hpp>      // IWYU pragma: export
#include <fathom/checkpoint/slice.hpp>        // IWYU pragma: export
#include <fathom/checkpoint/sliced.hpp>       // IWYU pragma: export
#include <fathom/checkpoint/together.hpp>     // IWYU pragma: export
