// Ranks that are threads of one process: they read each other's buffers where they lie, and a send ends with its
// receive.
#pragma once

#include <algorithm>
#include <fathom/comm/communicator.hpp>
#include <fathom/comm/detail/owned_operation.hpp>
#include <fathom/comm/detail/split_members.hpp>
#include <fathom/comm/detail/thread_progress.hpp>
#include <memory>
#include <utility>

namespace fathom::comm::threads {

/// An operation under way. Lives no longer than its communicator.
using handle = detail::owned_operation<detail::thread_progress, detail::thread_operation>;

/// One rank's view of a group of threads; keeps the promise of `comm::communicator`. Data moves while a rank waits,
/// starts or looks; nothing works in the background.
class communicator {
  public:
    communicator(std::shared_ptr<detail::thread_job> job, detail::thread_meeting& meeting, integer rank)
        : job_(std::move(job)), seat_(std::make_unique<detail::thread_seat>(meeting, rank)) {}

    [[nodiscard]] integer rank() const { return seat_->rank; }
    [[nodiscard]] integer size() const { return seat_->meeting->size(); }
    [[nodiscard]] const char* name() const { return seat_->meeting->name.c_str(); }
    [[nodiscard]] const flight_recorder& recorder() const { return seat_->recorder; }

    [[nodiscard]] handle start(const request& what) {
        detail::thread_progress progress{*job_, seat_->meeting->job_rank(seat_->rank)};
        return {progress, progress.start(*seat_, what)};
    }
    void run(const request& what) { start(what).wait(); }

    [[nodiscard]] communicator split(integer colour, integer key, const char* name) {
        std::vector<integer> members = detail::split_members(*this, colour, key);
        const integer place = std::find(members.begin(), members.end(), rank()) - members.begin();
        for (integer& member : members) member = seat_->meeting->job_rank(member);
        return {job_, job_->meeting(seat_->meeting, seat_->collectives, colour, name, members), place};
    }

  private:
    std::shared_ptr<detail::thread_job> job_;
    std::unique_ptr<detail::thread_seat> seat_;
};
static_assert(comm::communicator<communicator>);

}  // namespace fathom::comm::threads
