// What the system says this process holds, so that a plan of memory can be seen to be kept.
#pragma once

#include <cstdio>
#include <fathom/core/bytes.hpp>

namespace fathom::observe {

/// Bytes of this process in memory now, and at most so far; 0 where the system does not tell.
struct process_memory {
    integer resident = 0;  // VmRSS
    integer peak = 0;      // VmHWM
};

/// Reads them from a file like /proc/self/status.
[[nodiscard]] inline process_memory memory_of_process(const char* status = "/proc/self/status") {
    process_memory found;
    std::FILE* file = std::fopen(status, "r");
    if (file == nullptr) return found;
    char line[256];
    while (std::fgets(line, sizeof line, file) != nullptr) {
        long long kibibytes = 0;
        if (std::sscanf(line, "VmRSS: %lld", &kibibytes) == 1) found.resident = kibibytes * 1024;
        if (std::sscanf(line, "VmHWM: %lld", &kibibytes) == 1) found.peak = kibibytes * 1024;
    }
    std::fclose(file);
    return found;
}

}  // namespace fathom::observe
