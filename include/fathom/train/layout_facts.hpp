// What an engine must know of a recipe's layout: degrees, ZeRO, the schedule and the stages, as numbers and functions.
#pragma once

#include <fathom/models/share.hpp>
#include <fathom/parallel/degrees.hpp>
#include <fathom/parallel/schedule/built.hpp>

namespace fathom::train {

/// Of one rank alone, unless more is said.
struct layout_facts {
    degrees mesh{};
    integer zero = 0;
    integer shard_within = 0;       // data ranks over which ZeRO shards, where others have copies; 0: all
    double gradient_predivide = 1;  // what gradients are divided by before they are summed over ranks, then multiplied
    schedule::built (*schedule)(int ranks, int micro_batches) = nullptr;
    models::layers_of_stage layers = nullptr;
    integer micro_batches = 1;  // of a step, for which there is room
};

}  // namespace fathom::train
