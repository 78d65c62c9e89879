// The front door of the room of where things live: meshes and placements.
#pragma once

#include <fathom/parallel/mesh.hpp>       // IWYU pragma: export
#include <fathom/parallel/placement.hpp>  // IWYU pragma: export
