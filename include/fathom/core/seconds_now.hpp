// A clock for waits and rates that costs nothing to include.
#pragma once

#include <time.h>

namespace fathom {

/// Seconds since some moment in the past, by a clock that nobody sets. Not <chrono>, which costs the compiler more than
/// most rooms do.
[[nodiscard]] inline double seconds_now() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace fathom
