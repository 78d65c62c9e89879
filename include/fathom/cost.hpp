// The front door of the room of what a recipe will cost.
#pragma once

#include <fathom/cost/explain.hpp>  // IWYU pragma: export
