// Times as people read them.
#pragma once

#include <cmath>
#include <cstdio>
#include <string>

namespace fathom::observe {

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
