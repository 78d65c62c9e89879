// How a layer works on new tokens of texts whose earlier tokens it remembers: generation's counterpart of its forward.
#pragma once

#include <cstdint>
#include <fathom/nn/micro_batch.hpp>

namespace fathom::nn {

/// New tokens: row r is token batch.positions[r] of sequence sequences[r]. The batch has as many sequences of length 1
/// as there are rows; its starts are not read, a text is one document. Caches have `capacity` tokens a sequence.
template <class A> struct new_tokens {
    micro_batch<A> batch;
    const std::int32_t* sequences = nullptr;
    integer capacity = 0;

    [[nodiscard]] integer cache_row(integer r) const { return sequences[r] * capacity + batch.positions[r]; }
};

/// Made of a layer, with its parameters: `cache_width()` numbers to remember a token, `workspace` for so many rows, and
/// forward(queue, tokens, parameters, ..., cache, workspace, ...), which first remembers the rows, then uses all.
template <class Layer> struct decoder;

}  // namespace fathom::nn
