// Ranks that are processes, of one machine or many, over MPI.
#pragma once

#include <algorithm>
#include <fathom/comm/communicator.hpp>
#include <fathom/comm/detail/owned_operation.hpp>
#include <fathom/comm/detail/split_members.hpp>
#include <fathom/comm/mpi/detail/progress.hpp>
#include <memory>
#include <numeric>
#include <utility>

namespace fathom::comm::mpi {

/// An operation under way. Lives no longer than its communicator.
using handle = comm::detail::owned_operation<detail::progress*, detail::operation_under_way>;

/// One process's view of a group of them; keeps the promise of `comm::communicator`. Collectives are messages between
/// each pair of ranks: right for the tens of ranks that hosts have. A rank that fails is heard of by the others when
/// its process ends the job (`environment::end_all`), else at the time limit.
class communicator {
  public:
    /// The ranks of an MPI communicator, of which this is a duplicate; a collective. What moves on in a wait are the
    /// operations of communicators split from this one: a program makes all of its own from one.
    explicit communicator(MPI_Comm of = MPI_COMM_WORLD, watchdog limit = {}, const char* name = "world")
        : progress_(std::make_shared<detail::progress>(limit)), seat_(std::make_unique<detail::seat>()) {
        int size = 0;
        detail::check(MPI_Comm_size(of, &size), "MPI_Comm_size");
        std::vector<integer> ranks(static_cast<std::size_t>(size));
        std::iota(ranks.begin(), ranks.end(), integer{0});
        MPI_Comm copy = MPI_COMM_NULL;
        detail::check(MPI_Comm_dup(of, &copy), "MPI_Comm_dup");
        take(copy, name, std::move(ranks));
    }
    communicator(communicator&&) noexcept = default;
    communicator& operator=(communicator&& other) noexcept {
        std::swap(progress_, other.progress_);
        std::swap(seat_, other.seat_);
        return *this;
    }
    ~communicator() {
        if (seat_ != nullptr && seat_->comm != MPI_COMM_NULL) MPI_Comm_free(&seat_->comm);
    }

    [[nodiscard]] integer rank() const { return seat_->rank; }
    [[nodiscard]] integer size() const { return seat_->size(); }
    [[nodiscard]] const char* name() const { return seat_->name.c_str(); }
    [[nodiscard]] const flight_recorder& recorder() const { return seat_->recorder; }

    [[nodiscard]] handle start(const request& what) { return {progress_.get(), progress_->start(*seat_, what)}; }
    void run(const request& what) { start(what).wait(); }

    [[nodiscard]] communicator split(integer colour, integer key, const char* name) {
        std::vector<integer> members = comm::detail::split_members(*this, colour, key);
        const integer place = std::find(members.begin(), members.end(), rank()) - members.begin();
        MPI_Comm made = MPI_COMM_NULL;  // MPI's colours are not negative: the first member is one as good
        detail::check(MPI_Comm_split(seat_->comm, static_cast<int>(members.front()), static_cast<int>(place), &made),
                      "MPI_Comm_split");
        for (integer& member : members) member = seat_->job_rank(member);
        communicator part{progress_};
        part.take(made, name, std::move(members));
        return part;
    }

  private:
    explicit communicator(std::shared_ptr<detail::progress> progress)
        : progress_(std::move(progress)), seat_(std::make_unique<detail::seat>()) {}

    void take(MPI_Comm comm, const char* name, std::vector<integer> ranks) {
        seat_->comm = comm;
        detail::check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
        int rank = 0;
        detail::check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
        seat_->name = name;
        seat_->rank = rank;
        seat_->sends.resize(ranks.size());
        seat_->receives.resize(ranks.size());
        seat_->ranks = std::move(ranks);
    }

    std::shared_ptr<detail::progress> progress_;
    std::unique_ptr<detail::seat> seat_;
};
static_assert(comm::communicator<communicator>);

}  // namespace fathom::comm::mpi
