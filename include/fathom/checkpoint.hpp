// The front door of the room of how a run survives.
#pragma once

#include <fathom/checkpoint/directory.hpp>    // IWYU pragma: export
#include <fathom/checkpoint/safetensors.hpp>  // IWYU pragma: export
#include <fathom/checkpoint/sharded.hpp>      // IWYU pragma: export
