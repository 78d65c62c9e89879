// A point that no rank passes before all have come: start-up, saves, measurements.
#pragma once

#include <fathom/comm/request.hpp>

namespace fathom::comm {

/// Done when every rank has issued it.
[[nodiscard]] constexpr request barrier() { return {.kind = operation::barrier}; }

}  // namespace fathom::comm
