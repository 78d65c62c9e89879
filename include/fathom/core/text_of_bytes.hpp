// Numbers of bytes as people read them.
#pragma once

#include <cstdio>
#include <fathom/core/bytes.hpp>
#include <string>

namespace fathom {

/// Such as 1.5 GiB.
[[nodiscard]] inline std::string text_of_bytes(integer bytes) {
    static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double size = static_cast<double>(bytes);
    int unit = 0;
    for (; size >= 1024 && unit < 4; ++unit) size /= 1024;
    char text[32];
    std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", size, units[unit]);
    return text;
}

}  // namespace fathom
