// One line for each thing that is done before and after training, with its time.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>

namespace pretrain {

/// "what ... result  1.2 s" on standard output; the first word stands there while the work is done.
class stage {
  public:
    /// One that does not show, as on all ranks but one, prints nothing.
    explicit stage(const char* what, bool shows = true) : what_(what), shows_(shows) {
        if (shows && ::isatty(STDOUT_FILENO) != 0) std::printf("%-10s ...", what);
        if (shows) std::fflush(stdout);
    }
    void done(const std::string& result) {
        if (!shows_) return;
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
        std::printf("%s%-10s %s  %.1f s\n", ::isatty(STDOUT_FILENO) != 0 ? "\r\033[K" : "", what_, result.c_str(),
                    seconds);
        std::fflush(stdout);
    }

  private:
    const char* what_;
    bool shows_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace pretrain
