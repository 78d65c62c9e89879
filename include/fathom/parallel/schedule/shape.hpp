// Which stage lies where: the way that a micro-batch takes over the ranks.
#pragma once

namespace fathom::schedule {

/// How the stages of a model lie over ranks and their chunks.
enum class route : unsigned char {
    loop,     // chunk c of rank r is stage c * ranks + r
    v,        // down through chunk 0 of all ranks, back through chunk 1
    two_way,  // two copies: the first half of micro-batches goes down through chunk 0, the second half up through chunk
              // 1
};

/// The sizes of a schedule.
struct shape {
    int ranks = 1;
    int micro_batches = 1;
    int chunks = 1;  // stages that a rank holds
    route way = route::loop;

    /// Stages that a micro-batch passes.
    [[nodiscard]] constexpr int stages() const { return way == route::two_way ? ranks : ranks * chunks; }
    [[nodiscard]] constexpr int stage_of(int rank, int chunk) const {
        if (way == route::loop) return chunk * ranks + rank;
        return chunk == 0 ? rank : stages() - 1 - rank;
    }
    [[nodiscard]] constexpr int rank_of(int stage, int micro_batch) const {
        if (way == route::loop) return stage % ranks;
        return chunk_of(stage, micro_batch) == 0 ? stage : stages() - 1 - stage;
    }
    [[nodiscard]] constexpr int chunk_of(int stage, int micro_batch) const {
        return way == route::two_way ? micro_batch >= micro_batches / 2 : stage / ranks;
    }
    /// Whether a rank's chunk sees that micro-batch at all.
    [[nodiscard]] constexpr bool has(int rank, int chunk, int micro_batch) const {
        return rank >= 0 && rank < ranks && chunk >= 0 && chunk < chunks && micro_batch >= 0 &&
               micro_batch < micro_batches &&
               (way != route::two_way || chunk == static_cast<int>(micro_batch >= micro_batches / 2));
    }
    /// Numbers the pairs of stage and micro-batch.
    [[nodiscard]] constexpr int key(int stage, int micro_batch) const { return micro_batch * stages() + stage; }
    [[nodiscard]] constexpr int keys() const { return stages() * micro_batches; }
    /// The sizes make sense together.
    [[nodiscard]] constexpr bool sound() const {
        return ranks >= 1 && micro_batches >= 1 && chunks >= 1 && (way == route::loop || chunks == 2) &&
               (way != route::two_way || micro_batches % 2 == 0);
    }
};

}  // namespace fathom::schedule
