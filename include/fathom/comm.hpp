// The front door of the room of ranks that run together.
#pragma once

#include <fathom/comm/world.hpp>  // IWYU pragma: export
