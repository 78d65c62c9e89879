// What ranks that are processes recorded of a step, on one of them: only what lies in one process is compared or
// stored.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fathom/comm/exchange.hpp>
#include <fathom/comm/link.hpp>
#include <fathom/train/recorded_step.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace fathom::train {

namespace detail {

/// Bytes from one rank to another in blocks of one size, the last one padded: neither needs to know how many come, and
/// a record takes no second room of its size.
class block_stream {
  public:
    block_stream(const comm::link& ranks, integer peer) : ranks_(ranks), peer_(peer), block_(block_bytes) {}

    void put(const void* from, std::size_t bytes) {
        const auto* at = static_cast<const std::byte*>(from);
        while (bytes > 0) {
            const std::size_t some = std::min(bytes, block_bytes - used_);
            std::memcpy(block_.data() + used_, at, some);
            at += some, bytes -= some, used_ += some;
            if (used_ == block_bytes) finish();
        }
    }
    /// Sends what is left.
    void finish() {
        if (used_ == 0) return;
        run(comm::send_to(peer_, static_cast<const std::byte*>(block_.data()), block_bytes));
        used_ = 0;
    }
    void take(void* to, std::size_t bytes) {
        auto* at = static_cast<std::byte*>(to);
        while (bytes > 0) {
            if (left_ == 0) {
                run(comm::receive_from(peer_, block_.data(), block_bytes));
                left_ = block_bytes;
            }
            const std::size_t some = std::min(bytes, left_);
            std::memcpy(at, block_.data() + (block_bytes - left_), some);
            at += some, bytes -= some, left_ -= some;
        }
    }

  private:
    static constexpr std::size_t block_bytes = 1 << 18;

    void run(const comm::message& message) { ranks_.run(comm::exchange(std::span{&message, 1}).from("recorded step")); }

    const comm::link& ranks_;
    integer peer_;
    std::vector<std::byte> block_;
    std::size_t used_ = 0, left_ = 0;  // of a block that is filled; of one that has come
};

/// What of a tensor, and of a piece, is numbers of known length.
struct sent_tensor {
    integer name, operation, what, layer, order, rows, columns, pieces;
};
struct sent_piece {
    integer rank, row, column, rows, columns;
};

inline void send_step(const recorded_step& step, block_stream& to) {
    const integer count = static_cast<integer>(step.tensors().size());
    to.put(&count, sizeof count);
    for (const auto& [key, t] : step.tensors()) {
        const sent_tensor facts{static_cast<integer>(t.name.size()),
                                static_cast<integer>(t.operation.size()),
                                static_cast<integer>(t.what),
                                t.layer,
                                t.order,
                                t.rows,
                                t.columns,
                                static_cast<integer>(t.pieces.size())};
        to.put(&facts, sizeof facts);
        to.put(t.name.data(), t.name.size());
        to.put(t.operation.data(), t.operation.size());
        for (const recorded_tensor::piece& p : t.pieces) {
            const sent_piece place{p.rank, p.row, p.column, p.rows, p.columns};
            to.put(&place, sizeof place);
            to.put(p.values.data(), p.values.size() * sizeof(double));
        }
    }
    to.finish();
}

inline void receive_step(recorded_step& step, block_stream& from) {
    integer count = 0;
    for (from.take(&count, sizeof count); count > 0; --count) {
        sent_tensor facts{};
        from.take(&facts, sizeof facts);
        recorded_tensor t{std::string(static_cast<std::size_t>(facts.name), ' '),
                          static_cast<recorded_tensor::kind>(facts.what),
                          facts.layer,
                          std::string(static_cast<std::size_t>(facts.operation), ' '),
                          facts.order,
                          facts.rows,
                          facts.columns,
                          {}};
        from.take(t.name.data(), t.name.size());
        from.take(t.operation.data(), t.operation.size());
        for (; facts.pieces > 0; --facts.pieces) {
            sent_piece place{};
            from.take(&place, sizeof place);
            std::vector<double> values(static_cast<std::size_t>(place.rows * place.columns));
            from.take(values.data(), values.size() * sizeof(double));
            t.pieces.push_back({place.rank, place.row, place.column, place.rows, place.columns, std::move(values)});
        }
        step.add(std::move(t));
    }
}

}  // namespace detail

/// Brings all that ranks recorded of a step, each in a `step` of its own, to rank 0, one rank after the other; nothing
/// is left on the others. All ranks call it together. Errors, on rank 0: a tensor that ranks have in other shapes.
inline void gather_step(const comm::link& ranks, recorded_step& step) {
    if (ranks.rank() > 0) {
        recorded_step mine;
        mine.take(std::move(step));
        detail::block_stream to{ranks, 0};
        detail::send_step(mine, to);
        return;
    }
    for (integer rank = 1; rank < ranks.size(); ++rank) {
        detail::block_stream from{ranks, rank};
        detail::receive_step(step, from);
    }
}

}  // namespace fathom::train
