// What a model reads of one micro-batch, of which every depth of prediction has its own.
#pragma once

#include <cstdint>

namespace fathom::models {

/// The inputs of a micro-batch for one depth: 0 is the main model, k > 0 a multi-token prediction module, whose
/// sequences are k tokens shorter. All are [sequences, length - k].
struct depth_inputs {
    std::int32_t* ids = nullptr;
    std::int32_t* targets = nullptr;
    std::int32_t* positions = nullptr;
    std::int32_t* starts = nullptr;
};

}  // namespace fathom::models
