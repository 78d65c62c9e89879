// Schedules whose sizes are known to the compiler: the table as a constant, proven, and one sentence when it does not
// hold.
#pragma once

#include <array>
#include <fathom/core/bytes.hpp>
#include <fathom/parallel/schedule/lower.hpp>
#include <fathom/parallel/schedule/prove.hpp>
#include <fathom/parallel/schedule/words.hpp>

namespace fathom {

/// Where a rule is broken, so that the notes after an error name it.
template <integer Rank> struct on_rank { static constexpr integer value = Rank; };
template <integer Action> struct at_action { static constexpr integer value = Action; };

namespace rule {

template <class Table, schedule::problem Found, class Rank, class Action> struct schedule_holds {
    using enum schedule::problem;
    static_assert(Found != sizes,
                  "fathom: the sizes of a schedule make no sense. fix: at least one rank, chunk and "
                  "micro-batch, at most 64 ranks; two chunks and, for route::two_way, an even number of "
                  "micro-batches, unless it is route::loop.");
    static_assert(Found != foreign,
                  "fathom: a schedule has an action of a rank, chunk or micro-batch that is not there. "
                  "fix: count each from 0 to below the shape's, and leave exchanges to lower.");
    static_assert(Found != repeated,
                  "fathom: a schedule does the same work twice. fix: each forward, input's and weights' "
                  "gradient of a micro-batch once in each stage; backward is both gradients.");
    static_assert(Found != lost,
                  "fathom: a schedule loses a micro-batch. fix: give each stage its forward and its "
                  "backward, or both backward_input and backward_weight.");
    static_assert(Found != early,
                  "fathom: a schedule does something before what it needs. fix: in each stage forward, then "
                  "the input's, then the weights' gradient.");
    static_assert(Found != wrong_peer,
                  "fathom: a schedule sends to or receives from a rank that does not hold the next "
                  "stage. fix: let lower write the exchanges.");
    static_assert(Found != unmatched,
                  "fathom: a schedule sends what nobody receives, or waits for what nobody sends. fix: "
                  "let lower write the exchanges.");
    static_assert(Found != crossed,
                  "fathom: two ranks of a schedule exchange tensors in different orders. fix: let lower "
                  "write the exchanges.");
    static_assert(Found != deadlock,
                  "fathom: a schedule's ranks wait for each other for ever. fix: no rank may put a "
                  "forward after a backward that, through its neighbours, waits for it.");
    static constexpr bool holds = Found == none;
};

}  // namespace rule

namespace schedule {

namespace detail {

/// A lowered schedule and the memory that it lies in.
template <int Ranks, int Actions, int Transfers> struct stored_table {
    schedule::shape shape;
    std::array<action, Actions> actions{};
    std::array<transfer, Transfers> transfers{};
    std::array<int, Ranks + 1> begin{};
    unsigned action_count = 0, transfer_count = 0;

    constexpr explicit stored_table(const schedule::shape& s, std::span<const step> steps) : shape(s) {
        const table lowered = lower(s, steps, {actions, transfers, begin});
        action_count = static_cast<unsigned>(lowered.actions.size());
        transfer_count = static_cast<unsigned>(lowered.transfers.size());
    }
    [[nodiscard]] constexpr table view() const {
        return {shape, std::span{actions}.first(action_count), std::span{transfers}.first(transfer_count), begin};
    }
};

template <class Schedule, int Count> constexpr std::array<step, Count> written(const shape& s) {
    std::array<step, Count> steps{};
    write<Schedule>(s, steps.data());
    return steps;
}

template <class Table>
inline constexpr stored_table<Table::shape.ranks, most_actions(Table::shape, static_cast<int>(std::size(Table::steps))),
                              most_transfers(Table::shape)>
    stored{Table::shape, Table::steps};

template <int Transfers> struct ordered {
    std::array<int, Transfers> others{};
    proof so_far;

    constexpr explicit ordered(const table& t) : so_far(prove_order(t, {}, others.data())) {}
    [[nodiscard]] constexpr proof whole(const table& t) const {
        proof p = so_far;
        if (p.holds()) progress(t, {}, others.data(), p);
        return p;
    }
};

}  // namespace detail

/// A schedule for that many ranks and micro-batches. A type of your own is as good: it needs
///     static constexpr schedule::shape shape{.ranks = 2, .micro_batches = 2};
///     static constexpr schedule::step steps[] = {{0, work::forward, 0}, ...};
template <class Schedule, integer Ranks, integer MicroBatches>
struct at : Schedule::template sizes<Ranks, MicroBatches> {
    static constexpr bool fits = Schedule::fits(Ranks, MicroBatches);
    using written = std::conditional_t<fits, Schedule, gpipe>;  // a stand-in, so that one broken rule is one error
    static constexpr schedule::shape shape = shape_of<written>(Ranks > 0 ? static_cast<int>(Ranks) : 1,
                                                               MicroBatches > 0 ? static_cast<int>(MicroBatches) : 1);
    static constexpr auto steps = detail::written<written, write<written>(shape, nullptr)>(shape);
};

/// The table that runs: actions with their exchanges.
template <class Table> inline constexpr table table_of = detail::stored<Table>.view();

namespace detail {
template <class Table>
inline constexpr ordered<static_cast<int>(table_of<Table>.transfers.size())> order_of{table_of<Table>};
}  // namespace detail

/// What is known of it, with costs of one for a forward, two for a backward, three for both overlapped; for other costs
/// call prove(table_of<Table>, {...}).
template <class Table> inline constexpr proof proof_of = detail::order_of<Table>.whole(table_of<Table>);

/// static_assert(schedule::proven<mine>): a table that does not hold is one error, with the place in its notes.
template <class Table>
inline constexpr bool proven = rule::schedule_holds<Table, proof_of<Table>.found, on_rank<proof_of<Table>.rank>,
                                                    at_action<proof_of<Table>.action>>::holds;

}  // namespace schedule

}  // namespace fathom
