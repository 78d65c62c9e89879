// What every layer may know of the tokens it works on: their shape, places and weight in the step's loss; one struct,
// so that signatures stay short.
#pragma once

#include <cstdint>
#include <fathom/comm/mesh_links.hpp>
#include <fathom/core/bytes.hpp>
#include <fathom/nn/block_watch.hpp>
#include <fathom/tensor/matrix.hpp>

namespace fathom::nn {

/// The shape of a micro-batch: sequences of one length, their tokens one after another.
struct extents {
    integer sequences = 0;
    integer length = 0;
    integer longest = 0;  // where ranks split sequences: the largest length of any of them; 0: all have this one's
    [[nodiscard]] constexpr integer tokens() const { return sequences * length; }
    [[nodiscard]] constexpr integer most_tokens() const { return sequences * (longest > length ? longest : length); }
};

/// What is recomputed in backward instead of kept from forward.
struct recomputation {
    bool norms = false;           // the outputs of norms
    bool up_projections = false;  // queries, keys and values from their latents
    bool swiglu = false;          // the activations of feed-forward layers
    bool blocks = false;          // everything but a block's input
};

/// Which places of every sequence a rank holds where ranks split sequences: of 2 x ranks equal chunks the rank-th and
/// the rank-th from the end, so that all have the same causal work. The last `missing` places of the last chunks are
/// not there (for multi-token prediction). One rank has all places in its early chunk.
struct context_share {
    integer ranks = 1, rank = 0;
    integer whole = 0;    // places of a whole sequence with the missing ones: 2 x ranks chunks
    integer missing = 0;  // at its end

    struct run {
        integer first = 0, count = 0;
    };
    [[nodiscard]] constexpr integer chunk() const { return ranks == 1 ? whole : whole / (2 * ranks); }
    [[nodiscard]] constexpr integer length() const { return whole - missing; }
    /// The chunk `which` (0: the early one, 1: the late one) of a rank.
    [[nodiscard]] constexpr run places(integer of, int which) const {
        if (ranks == 1) return {which == 0 ? 0 : length(), which == 0 ? length() : 0};
        const integer first = (which == 0 ? of : 2 * ranks - 1 - of) * chunk();
        const integer end = first + chunk() < length() ? first + chunk() : length();
        return {first, end > first ? end - first : 0};
    }
    /// Places of a sequence that a rank holds.
    [[nodiscard]] constexpr integer count(integer of) const { return places(of, 0).count + places(of, 1).count; }
    /// The most that any rank holds.
    [[nodiscard]] constexpr integer longest() const {
        integer most = 0;
        for (integer of = 0; of < ranks; ++of) most = count(of) > most ? count(of) : most;
        return most;
    }
};

/// One micro-batch as layers see it. A is the format that sums are kept in.
template <class A> struct micro_batch {
    extents shape;
    const std::int32_t* positions = nullptr;  // [tokens]: place in the document, for rotary embeddings
    const std::int32_t* starts = nullptr;     // [tokens]: index in the sequence of the first token that may be attended
    matrix<const A> cosines;                  // [max_position_embeddings, qk_rope_head_dim / 2]
    matrix<const A> sines;
    double balance_weight =
        0;  // alpha of the sequence-wise balance loss over the sequences of the step; 0 leaves it out
    double* balance_loss = nullptr;
    // Where ranks split the model or the sequences. The residual stream then has this rank's `tokens` of the `shape`,
    // and `shape` has its part of every sequence.
    const comm::mesh_links* ranks = nullptr;
    context_share context{};
    block_watch* watch = nullptr;  // told of blocks as they work; null: all that they work on is here and stays
    integer first_sequence = 0;    // of the step's batch, as this replica has it

    [[nodiscard]] integer tokens() const { return stream_tokens(shape).count; }
    /// Over which tokens of the shape the residual stream goes: the tensor ranks share them in order.
    [[nodiscard]] share_of stream_tokens(extents of) const {
        return {of.tokens(), ranks != nullptr ? ranks->of.tp : 1, ranks != nullptr ? ranks->at.tp : 0};
    }
    struct token_place {
        integer sequence = 0, place = 0;
    };
    /// Which token of the step's batch a row of the residual stream is. `context` says which places this rank has, also
    /// where it has all.
    [[nodiscard]] token_place token(integer row) const {
        const integer at = stream_tokens(shape).first + row, i = at % shape.length;
        const auto early = context.places(context.rank, 0), late = context.places(context.rank, 1);
        return {first_sequence + at / shape.length, i < early.count ? early.first + i : late.first + i - early.count};
    }
};

}  // namespace fathom::nn
