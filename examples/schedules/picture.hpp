// A schedule as the picture that papers draw: a row a rank, a box an action, time to the right.
#pragma once

#include <fathom/parallel/schedule/built.hpp>
#include <string>

namespace schedules {

/// SVG of the actions' times under the costs, readable on light and dark paper.
std::string picture(const fathom::schedule::built& made, const fathom::schedule::proof& proof,
                    const fathom::schedule::costs& costs);

}  // namespace schedules
