// Which rows of what context ranks exchange are which places of a sequence.
#pragma once

#include <array>
#include <fathom/core/error.hpp>
#include <fathom/nn/micro_batch.hpp>
#include <fathom/nn/parameter.hpp>
#include <fathom/ops/attention.hpp>
#include <span>

namespace fathom::nn::detail {

/// The places of a batch whose sequences ranks share: of each sequence a rank's rows are its early, then its late
/// chunk. Errors: a batch that was cut for another number of ranks or of places.
struct context_places {
    using runs = std::array<ops::place_run, 2>;
    context_share share;
    integer sequences;
    comm::link ranks;

    template <class A>
    context_places(split_over context, const micro_batch<A>& batch)
        : share(batch.context), sequences(batch.shape.sequences) {
        const integer found = batch.ranks == nullptr ? 1 : batch.ranks->context.size();
        if (share.ranks != context.ranks || share.rank != context.rank || found != context.ranks)
            fail("context: found a batch of rank ", share.rank, " of ", share.ranks, " with links to ", found,
                 ", expected rank ", context.rank, " of the ", context.ranks, " that share sequences");
        if (batch.shape.length != share.count(share.rank))
            fail("context: found sequences of ", batch.shape.length, " places on rank ", share.rank, ", expected the ",
                 share.count(share.rank), " that it has of ", share.length());
        ranks = batch.ranks->context;
    }

    [[nodiscard]] integer tokens(integer rank) const { return sequences * share.count(rank); }
    /// What a rank has, in rows from `row` on.
    [[nodiscard]] runs of(integer rank, integer row) const {
        const context_share::run early = share.places(rank, 0), late = share.places(rank, 1);
        const integer step = early.count + late.count;
        return {{{.place = early.first, .count = early.count, .row = row, .step = step},
                 {.place = late.first, .count = late.count, .row = row + early.count, .step = step}}};
    }
    [[nodiscard]] runs own() const { return of(share.rank, 0); }
    /// Of rows in which the ranks lie one after another, with room for `each` tokens, the runs of all ranks in the
    /// order of the sequence; to[2 * ranks].
    [[nodiscard]] std::span<const ops::place_run> all(integer each, ops::place_run* to) const {
        for (integer r = 0; r < share.ranks; ++r) {
            const runs both = of(r, r * each);
            to[r] = both[0];
            to[2 * share.ranks - 1 - r] = both[1];
        }
        return {to, static_cast<std::size_t>(2 * share.ranks)};
    }
};

}  // namespace fathom::nn::detail
