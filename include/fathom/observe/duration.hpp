// Times as people read them.
#pragma once

#include <time.h>

#include <cmath>
#include <cstdio>
#include <string>

namespace fathom::observe {

/// Seconds since some moment in the past, by a clock that nobody sets. Not <chrono>, which costs more than all of
/// observe.
[[nodiscard]] inline double seconds_now() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// 0:07, 12:34 or 1:02:03; "?" for what is no time.
[[nodiscard]] inline std::string duration_text(double seconds) {
    if (!(seconds >= 0 && seconds < 1e9)) return "?";
    const auto whole = static_cast<long long>(std::llround(seconds));
    char text[32];
    if (whole < 3600)
        std::snprintf(text, sizeof text, "%lld:%02lld", whole / 60, whole % 60);
    else
        std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
    return text;
}

}  // namespace fathom::observe
