// The front door of the room of where things live: meshes, placements, pipeline schedules, stages and experts.
#pragma once

#include <fathom/parallel/count.hpp>             // IWYU pragma: export
#include <fathom/parallel/degrees.hpp>           // IWYU pragma: export
#include <fathom/parallel/expert_placement.hpp>  // IWYU pragma: export
#include <fathom/parallel/mesh.hpp>              // IWYU pragma: export
#include <fathom/parallel/mesh_ranks.hpp>        // IWYU pragma: export
#include <fathom/parallel/placement.hpp>         // IWYU pragma: export
#include <fathom/parallel/schedule.hpp>          // IWYU pragma: export
#include <fathom/parallel/stages.hpp>            // IWYU pragma: export
