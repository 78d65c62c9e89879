// What a rank computes next, as a word of a schedule: generators and users write schedules in it.
#pragma once

namespace fathom::schedule {

/// Kinds of actions. `backward` is the input's and the weights' gradient together; `overlapped` a forward and a
/// backward at once; `exchange` is what lowering puts between computations.
enum class work : unsigned char { forward, backward_input, backward_weight, backward, overlapped, exchange };

/// One computation of a rank. Steps of one rank are done in the order in which they are written, whatever stands
/// between.
struct step {
    int rank = 0;
    work what = work::forward;
    int micro_batch = 0;
    int chunk = 0;                 // which of the rank's stages
    int backward_micro_batch = 0;  // overlapped: what its backward is of; the two above are its forward's
    int backward_chunk = 0;

    [[nodiscard]] constexpr bool has_forward() const { return what == work::forward || what == work::overlapped; }
    [[nodiscard]] constexpr bool has_backward() const {
        return what == work::backward_input || what == work::backward || what == work::overlapped;
    }
    /// The weights' gradient is part of it.
    [[nodiscard]] constexpr bool has_weight() const {
        return what == work::backward_weight || what == work::backward || what == work::overlapped;
    }
    /// Of the part that is not forward.
    [[nodiscard]] constexpr int micro_batch_back() const {
        return what == work::overlapped ? backward_micro_batch : micro_batch;
    }
    [[nodiscard]] constexpr int chunk_back() const { return what == work::overlapped ? backward_chunk : chunk; }
};

}  // namespace fathom::schedule
