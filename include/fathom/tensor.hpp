// The front door of the room of what flows: axes, views, arenas.
#pragma once

#include <fathom/tensor/arena.hpp>    // IWYU pragma: export
#include <fathom/tensor/axis.hpp>     // IWYU pragma: export
#include <fathom/tensor/matrix.hpp>   // IWYU pragma: export
#include <fathom/tensor/partial.hpp>  // IWYU pragma: export
#include <fathom/tensor/tensor.hpp>   // IWYU pragma: export
