// The ranks that run together, as a program sees them: which one it is, how many there are, and who prints.
#pragma once

#include <atomic>
#include <cstdio>
#include <fathom/comm/all_reduce.hpp>
#include <fathom/comm/barrier.hpp>
#include <fathom/comm/link.hpp>
#include <fathom/core/error.hpp>
#include <fathom/parallel/mesh_ranks.hpp>
#include <string_view>

namespace fathom {

/// One rank's view of all ranks. Rank 0 prints.
class world {
  public:
    /// `neighbours`: how many of the ranks share this machine's processor.
    explicit world(const std::atomic<bool>* stop = nullptr, comm::link ranks = {}, integer neighbours = 1)
        : stop_(stop), ranks_(ranks), neighbours_(neighbours) {}
    [[nodiscard]] integer rank() const { return ranks_.rank(); }
    [[nodiscard]] integer size() const { return ranks_.size(); }
    [[nodiscard]] integer neighbours() const { return neighbours_; }
    [[nodiscard]] const comm::link& ranks() const { return ranks_; }
    /// Whether somebody asked the program to stop (Ctrl-C under `launch`). All ranks ask at the same place and get the
    /// same answer.
    [[nodiscard]] bool stop_requested() const {
        std::int32_t asked = stop_ != nullptr && stop_->load(std::memory_order_relaxed) ? 1 : 0;
        ranks_.run(comm::all_reduce(&asked, 1, comm::reduction::max).from("stop requested"));
        return asked != 0;
    }
    /// Waits until all ranks are here.
    void meet(const char* label) const { ranks_.run(comm::barrier().from(label)); }
    /// Errors: another number of ranks than Mesh has, or none of the numbers that it can have.
    template <class Mesh> void require_ranks() const { require_ranks(mesh_ranks_of<Mesh>()); }
    void require_ranks(const mesh_ranks& wanted) const {
        if (wanted.fit(size())) return;
        fail("found ", size(), size() == 1 ? " rank" : " ranks", ", expected ", wanted.text(),
             "; start as many (--threads ", wanted.each(), " or mpirun -n ", wanted.each(), ")",
             wanted.any_dp ? "" : ", or write dp<any>");
    }
    /// A line on standard output, on one rank.
    void print(std::string_view line) const {
        if (rank() != 0) return;
        std::fwrite(line.data(), 1, line.size(), stdout);
        std::fputc('\n', stdout);
        std::fflush(stdout);
    }

  private:
    const std::atomic<bool>* stop_;
    comm::link ranks_;
    integer neighbours_;
};

}  // namespace fathom
