// A communicator without its type: what is compiled once, whatever the ranks are, holds this.
#pragma once

#include <fathom/comm/communicator.hpp>
#include <fathom/core/error.hpp>

namespace fathom::comm {

/// A view of one rank's communicator, which must outlive it; without one, a world of one rank. Operations are waited
/// for.
class link {
  public:
    link() = default;
    template <communicator C>
    explicit link(C& ranks)
        : ranks_(&ranks),
          run_([](void* to, const request& what) { static_cast<C*>(to)->run(what); }),
          rank_(ranks.rank()),
          size_(ranks.size()) {}

    [[nodiscard]] integer rank() const { return rank_; }
    [[nodiscard]] integer size() const { return size_; }
    /// Alone, nothing: reductions in place, broadcasts and barriers of one rank leave everything as it is. Errors:
    /// those of the communicator; an operation that is none of these, alone.
    void run(const request& what) const {
        if (run_ != nullptr) return run_(ranks_, what);
        const bool in_place =
            what.kind == operation::all_reduce || what.kind == operation::broadcast || what.kind == operation::barrier;
        if (!in_place) fail("link: found ", name_of(what.kind), " on one rank, expected an operation in place");
    }

  private:
    void* ranks_ = nullptr;
    void (*run_)(void*, const request&) = nullptr;
    integer rank_ = 0, size_ = 1;
};

}  // namespace fathom::comm
