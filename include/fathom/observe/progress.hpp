// How far a long job is, where a person looks: one line that is redrawn on a terminal, a line every few seconds in a
// file.
#pragma once

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fathom/core/bytes.hpp>
#include <fathom/core/seconds_now.hpp>
#include <fathom/observe/duration.hpp>
#include <string>
#include <string_view>

namespace fathom::observe {

/// `done/total [####----] facts` in at most `width` columns: the bar takes what is left over, pairs of spaces become
/// one where room is short, and what does not fit even then is cut. Facts are ASCII.
[[nodiscard]] inline std::string progress_line(integer done, integer total, std::string_view facts, integer width) {
    const std::string count = std::to_string(done) + '/' + std::to_string(total) + "  ";
    std::string line = count + std::string{facts};
    constexpr integer least_bar = 10, most_bar = 40;
    const integer room = std::min(width - static_cast<integer>(line.size()) - 4, most_bar);  // "[", "]  "
    if (room >= least_bar) {
        const integer filled = total > 0 ? room * std::clamp(done, integer{0}, total) / total : room;
        std::string bar(static_cast<std::size_t>(room), '-');
        std::fill_n(bar.begin(), filled, '#');
        return count + '[' + bar + "]  " + std::string{facts};
    }
    for (std::size_t at = 0; static_cast<integer>(line.size()) > width && (at = line.find("  ", at)) != line.npos;)
        line.erase(at, 1);
    if (static_cast<integer>(line.size()) > width) line.resize(static_cast<std::size_t>(std::max(width, integer{0})));
    return line;
}

/// The progress of one job of `total` steps. It owns the cursor's line until `finish`.
class progress {
  public:
    /// Starts the clock at `done` steps. Off a terminal a line is written every `seconds`.
    progress(std::FILE* out, integer done, integer total, double seconds = 5)
        : out_(out), from_(done), total_(total), terminal_(::isatty(::fileno(out)) != 0), seconds_(seconds) {}
    progress(const progress&) = delete;
    progress& operator=(const progress&) = delete;
    ~progress() { finish(); }

    /// Shows that `done` steps are done, with the time that the rest will take; not more often than people read.
    void show(integer done, std::string_view facts) {
        const double now = seconds_now();
        const bool due = !shown_ || now - last_ >= (terminal_ ? 0.1 : seconds_);
        if (!due && done < total_) return;
        shown_ = true;
        last_ = now;
        const double spent = now - start_;
        std::string line{facts};
        if (done > from_ && done < total_)
            line += "  " +
                    duration_text(spent / static_cast<double>(done - from_) * static_cast<double>(total_ - done)) +
                    " left";
        line = progress_line(done, total_, line, terminal_ ? width() - 1 : integer{1} << 10);
        if (terminal_)
            std::fprintf(out_, "\r\033[K%s", line.c_str());
        else
            std::fprintf(out_, "%s\n", line.c_str());
        open_ = terminal_;
        std::fflush(out_);
    }

    /// A line of its own, above the next one of `show`.
    void print(std::string_view line) {
        std::fprintf(out_, "%s%.*s\n", open_ ? "\r\033[K" : "", static_cast<int>(line.size()), line.data());
        std::fflush(out_);
        open_ = false;
    }

    /// Leaves the last line where it is; the next output begins below it.
    void finish() {
        if (open_) std::fputc('\n', out_);
        std::fflush(out_);
        open_ = false;
    }

  private:
    [[nodiscard]] integer width() const {
        winsize size{};
        return ::ioctl(::fileno(out_), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
    }

    std::FILE* out_;
    integer from_, total_;
    bool terminal_;
    double seconds_;
    double start_ = seconds_now(), last_ = start_;
    bool shown_ = false, open_ = false;
};

}  // namespace fathom::observe
