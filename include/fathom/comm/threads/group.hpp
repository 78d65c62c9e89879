// The ranks of one process before they run: made up front, so that no rank can come too late to be known.
#pragma once

#include <fathom/comm/threads/communicator.hpp>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace fathom::comm::threads {

/// So many ranks, each to be given to one thread.
class group {
  public:
    explicit group(integer ranks, watchdog limit = {}) {
        if (ranks < 1) fail("a group of ", ranks, " ranks, expected one or more");
        job_ = std::make_shared<detail::thread_job>(ranks, limit);
        std::vector<integer> all(static_cast<std::size_t>(ranks));
        std::iota(all.begin(), all.end(), integer{0});
        world_ = &job_->meeting(nullptr, 0, 0, "world", all);
    }
    [[nodiscard]] integer size() const { return job_->size(); }
    /// The communicator of all ranks, for the thread that is to be this rank; once a rank.
    [[nodiscard]] communicator rank(integer number) const { return {job_, *world_, number}; }

    /// Ends the job: every rank throws this text from the operation that it is in, or from its next one. The first
    /// stays.
    void end(const std::string& reason) const { job_->end(reason); }
    [[nodiscard]] bool has_ended() const { return job_->has_ended(); }
    /// Why the job ended.
    [[nodiscard]] std::string reason() const { return job_->reason(); }
    /// A rank's work is over; who still waits for it throws an error that says so.
    void leave(integer number) const { job_->leave_for_good(number); }

  private:
    std::shared_ptr<detail::thread_job> job_;
    detail::thread_meeting* world_;
};

}  // namespace fathom::comm::threads
