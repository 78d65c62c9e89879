// What a communicator is: the one promise that threads, MPI, NCCL and what wraps them keep.
#pragma once

#include <concepts>
#include <fathom/comm/flight_recorder.hpp>
#include <fathom/comm/request.hpp>
#include <utility>

namespace fathom::comm {

/// A group of ranks, seen from one of them, used by one thread of that rank.
///
/// `start(request)` issues an operation after all that was put on the communicator's queue (the host's runs at once, so
/// there is nothing to wait for there) and gives a handle. The handle's `wait()` returns when what is put on the queue
/// afterwards sees the result; `done()` looks, without waiting. `run(request)` is `start` and `wait`.
///
/// All ranks issue a communicator's collectives in one order; exchanges stand apart from it. Handles may be waited for
/// in any order, and every wait moves all operations of its rank on, of all its communicators. A handle that dies
/// before its operation is done ends the job, because others may be reading its buffers. Errors of another rank, a
/// mismatch, or a time limit throw `fathom::error` out of `start`, `wait` and `done` on every rank.
///
/// `split(colour, key, name)` is a collective: the ranks of one colour, ordered by key, then by rank, make a
/// communicator. Every rank must make its communicators in one order. A communicator outlives its handles.
template <class C>
concept communicator = requires(C& ranks, const C& seen, const request& what, integer number, const char* name) {
    { seen.rank() } -> std::same_as<integer>;
    { seen.size() } -> std::same_as<integer>;
    { seen.name() } -> std::convertible_to<const char*>;
    { seen.recorder() } -> std::same_as<const flight_recorder&>;
    { ranks.start(what).wait() } -> std::same_as<void>;
    { ranks.start(what).done() } -> std::same_as<bool>;
    { ranks.run(what) } -> std::same_as<void>;
    { ranks.split(number, number, name) } -> std::same_as<C>;
};

/// What `start` of a communicator gives: for operations that are kept while others run.
template <communicator C> using handle_of = decltype(std::declval<C&>().start(std::declval<const request&>()));

}  // namespace fathom::comm
