// What every layer may know of the tokens it works on: their shape, places and weight in the step's loss; one struct,
// so that signatures stay short.
#pragma once

#include <cstdint>
#include <fathom/core/bytes.hpp>
#include <fathom/tensor/matrix.hpp>

namespace fathom::nn {

/// The shape of a micro-batch: sequences of one length, their tokens one after another.
struct extents {
    integer sequences = 0;
    integer length = 0;
    [[nodiscard]] constexpr integer tokens() const { return sequences * length; }
};

/// What is recomputed in backward instead of kept from forward.
struct recomputation {
    bool norms = false;           // the outputs of norms
    bool up_projections = false;  // queries, keys and values from their latents
    bool swiglu = false;          // the activations of feed-forward layers
    bool blocks = false;          // everything but a block's input
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
};

}  // namespace fathom::nn
