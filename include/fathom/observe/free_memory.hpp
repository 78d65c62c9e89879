// How much memory this machine still gives, so that a run which needs more ends before its first step and not within
// it.
#pragma once

#include <algorithm>
#include <cstdio>
#include <fathom/core/bytes.hpp>
#include <string>

namespace fathom::observe {

/// Bytes that processes here can still take: what the system has, or less where the process's group has a limit; -1
/// where neither tells. Read from a file like /proc/meminfo and a folder like /sys/fs/cgroup.
[[nodiscard]] inline integer free_memory(const char* system = "/proc/meminfo",
                                         const std::string& group = "/sys/fs/cgroup") {
    long long found = -1, number = 0;
    if (std::FILE* file = std::fopen(system, "r")) {
        char line[256];
        while (std::fgets(line, sizeof line, file) != nullptr)
            if (std::sscanf(line, "MemAvailable: %lld", &number) == 1) found = number * 1024;
        std::fclose(file);
    }
    const auto number_in = [](const std::string& path) {
        long long read = -1;  // also where a limit is `max`
        if (std::FILE* file = std::fopen(path.c_str(), "r")) {
            if (std::fscanf(file, "%lld", &read) != 1) read = -1;
            std::fclose(file);
        }
        return read;
    };
    const long long limit = number_in(group + "/memory.max"), used = number_in(group + "/memory.current");
    if (limit < 0 || used < 0) return found;
    const long long left = std::max(limit - used, 0LL);
    return found < 0 ? left : std::min(found, left);
}

}  // namespace fathom::observe
