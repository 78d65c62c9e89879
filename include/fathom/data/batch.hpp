// What one training step reads: plain arrays, so that tokens from anywhere will do.
#pragma once

#include <cstdint>
#include <vector>

#include "fathom/core/bytes.hpp"

namespace fathom {

/// Sequences of one length, one after another; each array is [sequences * length].
struct batch {
    integer sequences = 0;
    integer length = 0;
    std::vector<std::int32_t> tokens;
    /// labels[i] is the target of position i: the token after it, already shifted. -100 is ignored.
    std::vector<std::int32_t> labels;
    /// The place of each token in its document, counted from where the document enters the sequence.
    std::vector<std::int32_t> positions;
    /// The index, in its sequence, of the first token that each token may attend to: where its document starts.
    std::vector<std::int32_t> starts;
    /// How many labels are not ignored.
    integer targets = 0;
};

}  // namespace fathom
