// Rows of all context ranks in one matrix: gathered on the way forward, their gradients' sums scattered on the way
// back.
#pragma once

#include <fathom/comm/all_gather.hpp>
#include <fathom/comm/reduce_scatter.hpp>
#include <fathom/nn/detail/context_places.hpp>
#include <fathom/ops/elementwise.hpp>
#include <fathom/tensor/arena.hpp>

namespace fathom::nn::detail {

/// Rows of whole sequences, a rank's after another's, with the same room for each. The room that a rank does not fill
/// may be read (a product over all rows does), so it is zero.
struct context_gather {
    split_over context;

    /// Tokens of whole sequences, with the room that is not filled.
    [[nodiscard]] constexpr integer tokens(extents shape) const { return context.ranks * shape.most_tokens(); }
    /// The runs of `tokens` rows.
    template <class T>
    [[nodiscard]] std::span<const ops::place_run> runs(const context_places& places, matrix<T> whole,
                                                       ops::place_run* to) const {
        return places.all(room(whole), to);
    }
    /// This rank's `count` rows.
    template <class T> [[nodiscard]] matrix<T> own(matrix<T> whole, integer count) const {
        if (count > room(whole))
            fail("context: found room for ", room(whole), " tokens of each rank, expected room for ", count);
        return whole.rows_at(context.rank * room(whole), count);
    }
    /// Zero where no rank has tokens.
    template <class Queue, class T> void clear_rest(Queue& queue, const context_places& places, matrix<T> whole) const {
        for (integer r = 0; r < context.ranks; ++r) clear_rest_of(queue, places, whole, r);
    }
    /// whole[tokens, width], of which this rank's rows are there, becomes all ranks' rows.
    template <class Queue, class T>
    void gather(Queue& queue, const context_places& places, matrix<T> whole, const char* label) const {
        clear_rest_of(queue, places, whole, context.rank);
        places.ranks.run(
            comm::all_gather(own(whole, room(whole)).data, whole.data, room(whole) * whole.width).from(label));
    }
    /// This rank's rows of whole[tokens, width] become the sums over all ranks' whole.
    template <class T> void scatter(const context_places& places, matrix<T> whole, const char* label) const {
        places.ranks.run(
            comm::reduce_scatter(whole.data, own(whole, room(whole)).data, room(whole) * whole.width).from(label));
    }

  private:
    template <class T> [[nodiscard]] integer room(matrix<T> whole) const { return whole.rows / context.ranks; }
    template <class Queue, class T>
    void clear_rest_of(Queue& queue, const context_places& places, matrix<T> whole, integer rank) const {
        const integer count = places.tokens(rank);
        ops::fill_zero(queue, whole.row(rank * room(whole) + count), (room(whole) - count) * whole.width);
    }
};

}  // namespace fathom::nn::detail
