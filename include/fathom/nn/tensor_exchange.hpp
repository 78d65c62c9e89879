// Tokens of the residual stream between the tensor ranks that share them: the one place where split layers talk.
#pragma once

#include <fathom/comm/all_gather.hpp>
#include <fathom/comm/reduce_scatter.hpp>
#include <fathom/core/error.hpp>
#include <fathom/nn/micro_batch.hpp>
#include <fathom/nn/parameter.hpp>
#include <fathom/ops/elementwise.hpp>
#include <fathom/tensor/arena.hpp>

namespace fathom::nn {

/// How tensor ranks share the tokens of a shape: each has its share in order, and a layer that they split reads the
/// whole and leaves a part of a sum. A whole lies where equal shares of all ranks have room; of these the last ones may
/// be cut. Alone, the share is the whole and needs no further room.
struct tensor_exchange {
    split_over over;
    integer tokens;
    share_of mine;

    constexpr tensor_exchange(split_over tensor, extents shape)
        : over(tensor), tokens(shape.tokens()), mine(tokens, tensor.ranks, tensor.rank) {}

    [[nodiscard]] constexpr bool alone() const { return over.ranks == 1; }

    /// Room for this rank's share.
    template <class T> constexpr matrix<T> take_share(arena& memory, integer width) const {
        return memory.take<T>(mine.each, width).rows_at(0, mine.count);
    }
    /// Room for the whole; empty alone.
    template <class T> constexpr matrix<T> take_whole(arena& memory, integer width) const {
        return alone() ? matrix<T>{} : memory.take<T>(over.ranks * mine.each, width).rows_at(0, tokens);
    }
    /// The whole of these tokens in room for as many or more.
    template <class T> [[nodiscard]] constexpr matrix<T> whole(matrix<T> room) const { return room.rows_at(0, tokens); }
    /// This rank's share of a whole.
    template <class T> [[nodiscard]] constexpr matrix<T> own(matrix<T> whole) const {
        return {whole.data + over.rank * mine.each * whole.width, mine.count, whole.width};
    }

    /// All ranks' shares, in `whole` (which may hold this rank's already); alone, `share`.
    template <class Queue, class T>
    matrix<const T> gather(Queue& queue, const comm::mesh_links* ranks, std::type_identity_t<matrix<const T>> share,
                           matrix<T> whole, const char* label) const {
        if (alone()) return share;
        const matrix<T> mine_of_whole = own(whole);
        if (share.data != mine_of_whole.data) ops::copy(queue, mine_of_whole, share);
        tensor_ranks(ranks).run(comm::all_gather(mine_of_whole.data, whole.data, mine.each * whole.width).from(label));
        return whole;
    }
    /// The sum of all ranks' `whole`, of this rank's tokens: its share of `whole`, or, alone, `whole` itself.
    template <class T>
    matrix<T> reduce_scatter(const comm::mesh_links* ranks, matrix<T> whole, const char* label) const {
        if (alone()) return whole;
        const matrix<T> sum = own(whole);
        tensor_ranks(ranks).run(comm::reduce_scatter(whole.data, sum.data, mine.each * whole.width).from(label));
        return sum;
    }

  private:
    [[nodiscard]] const comm::link& tensor_ranks(const comm::mesh_links* ranks) const {
        if (ranks == nullptr || ranks->tensor.size() != over.ranks)
            fail("tensor_exchange: found a batch for ", ranks == nullptr ? 1 : ranks->tensor.size(),
                 " tensor ranks, expected the ", over.ranks, " that split the layer");
        return ranks->tensor;
    }
};

}  // namespace fathom::nn
