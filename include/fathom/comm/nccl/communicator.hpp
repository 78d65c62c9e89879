// Ranks that are GPUs, over NCCL.
#pragma once

#include <climits>
#include <fathom/comm/broadcast.hpp>
#include <fathom/comm/communicator.hpp>
#include <fathom/comm/detail/owned_operation.hpp>
#include <fathom/comm/nccl/detail/seat.hpp>
#include <memory>
#include <utility>

namespace fathom::comm::nccl {

/// An operation under way. Lives no longer than its communicator.
using handle = comm::detail::owned_operation<detail::seat*, detail::operation_under_way>;

/// One rank's view of a group of GPUs; keeps the promise of `comm::communicator` on a CUDA stream, the queue: an
/// operation begins when what is on the queue is done, runs on a stream of the communicator's own beside what comes
/// next, and `wait()` makes the queue wait for it. The CPU never waits, except in `settle`. Buffers are of device
/// memory.
///
/// What NCCL cannot promise: sums go in an order of NCCL's own, the same in every run of the same sizes and settings;
/// messages of one exchange that depend on those of another wait for each other for ever, so both ranks issue the
/// exchanges of their pair in one order and grouping; lengths and formats that differ between ranks are not seen.
///
/// An operation that has not ended at the watchdog's limit, or that NCCL says has failed, aborts the communicator,
/// which frees the GPU; then and from then on every call throws. This is looked for in `start`, `wait`, `done` and
/// `settle`.
class communicator {
  public:
    /// All ranks call it together, each with its GPU set as the current one. The settings' variables must be in the
    /// environment (`hand_over`); algorithms and protocols are chosen here. Errors: ranks that do not come within the
    /// limit's start; what NCCL and CUDA say.
    communicator(void* queue, const unique_id& id, integer rank, integer size, const settings& tuned = {},
                 watchdog limit = {}, const char* name = "world", const functions& calls = functions::loaded())
        : seat_(std::make_unique<detail::seat>(calls, queue, tuned, limit, name)) {
        if (size < 1 || size > INT_MAX || rank < 0 || rank >= size)
            fail("NCCL: found rank ", rank, " of ", size, ", expected a rank below the number of ranks");
        seat_->take_place(rank, size);
        seat_->begin([&](void** comm, configuration* how) {
            return calls.nccl.init(comm, static_cast<int>(size), id, static_cast<int>(rank), how);
        });
    }
    /// Over ranks that meet already, such as MPI's: they pass the id on.
    template <comm::communicator Host>
    [[nodiscard]] static communicator over(Host& host, void* queue, const settings& tuned = {}, watchdog limit = {},
                                           const functions& calls = functions::loaded()) {
        unique_id id{};
        if (host.rank() == 0) id = new_id(calls);
        host.run(broadcast(reinterpret_cast<std::byte*>(id.bytes), sizeof id.bytes).from("NCCL's id"));
        return {queue, id, host.rank(), host.size(), tuned, limit, host.name(), calls};
    }
    /// Over another's ncclComm_t, which must outlive this and is aborted if this fails; a collective.
    [[nodiscard]] static communicator of(void* foreign, void* queue, const settings& tuned = {}, watchdog limit = {},
                                         const char* name = "world", const functions& calls = functions::loaded()) {
        communicator made{std::make_unique<detail::seat>(calls, queue, tuned, limit, name)};
        made.seat_->adopt(foreign);
        return made;
    }
    /// For one rank, which hands it to the others.
    [[nodiscard]] static unique_id new_id(const functions& calls = functions::loaded()) {
        unique_id id{};
        if (const int result = calls.nccl.get_unique_id(&id); result != success)
            fail("ncclGetUniqueId: found ", calls.nccl.error_string(result), ", expected an id of a communicator");
        return id;
    }

    [[nodiscard]] integer rank() const { return seat_->rank_; }
    [[nodiscard]] integer size() const { return seat_->size_; }
    [[nodiscard]] const char* name() const { return seat_->name_.c_str(); }
    [[nodiscard]] const flight_recorder& recorder() const { return seat_->recorder_; }

    [[nodiscard]] handle start(const request& what) { return {seat_.get(), seat_->start(what)}; }
    void run(const request& what) { start(what).wait(); }
    /// The CPU waits until all operations are over, within the limit: before it waits for the queue, which has none.
    void settle() { seat_->settle(); }

    /// Colours are 0 or more, keys any, as far as an int goes.
    [[nodiscard]] communicator split(integer colour, integer key, const char* name) {
        if (colour < 0 || colour > INT_MAX || key < INT_MIN || key > INT_MAX)
            fail("split of ", this->name(), " to ", name, ": found colour ", colour, " and key ", key,
                 ", expected a colour from 0 and both within an int");
        communicator part{
            std::make_unique<detail::seat>(*seat_->calls_, seat_->queue_, seat_->tuned_, seat_->limit_, name)};
        part.seat_->begin_part(*seat_, static_cast<int>(colour), static_cast<int>(key));
        return part;
    }

  private:
    explicit communicator(std::unique_ptr<detail::seat> seat) : seat_(std::move(seat)) {}

    std::unique_ptr<detail::seat> seat_;
};
static_assert(comm::communicator<communicator>);

}  // namespace fathom::comm::nccl
