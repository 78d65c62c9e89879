// The embedding as a layer: ids become the residual stream, on one rank or on several that split the vocabulary.
#pragma once

#include <cstdint>
#include <fathom/core/number.hpp>
#include <fathom/nn/micro_batch.hpp>
#include <fathom/nn/tensor_exchange.hpp>
#include <fathom/ops/embedding.hpp>
#include <fathom/tensor/arena.hpp>
#include <fathom/tensor/tensor.hpp>

namespace fathom::nn {

/// y = the rows of the table that the ids name. Split: every tensor rank has its rows of the table, sees all ids, and
/// gets its share of the tokens.
template <class T, bool Split = false> struct token_embedding {
    using A = accumulator_t<T>;

    integer hidden_size = 0;
    integer vocab_size = 0;
    split_over over{};  // by vocabulary

    struct workspace {
        matrix<T> whole;  // [tokens of all tensor ranks, hidden]
    };

    constexpr workspace work(arena& memory, extents shape) const {
        workspace w;
        if constexpr (Split) w.whole = exchange(shape).template take_whole<T>(memory, hidden_size);
        return w;
    }

    /// y[this rank's tokens, hidden], ids[tokens of the shape].
    template <class Queue>
    void forward(Queue& queue, const micro_batch<A>& batch, tensor<const T, axis::vocabulary, axis::hidden> table,
                 const std::int32_t* ids, tensor<T, axis::tokens, axis::hidden> y, workspace& w) const {
        if constexpr (Split) {
            if (const auto between = exchange(batch.shape); !between.alone()) {
                const matrix<T> whole = between.whole(w.whole);
                ops::embed<T>(queue, whole, ids, table, first(), vocab_size);
                ops::copy(queue, y, between.reduce_scatter(batch.ranks, whole, "embedded tokens"));
                return;
            }
        }
        ops::embed<T>(queue, y, ids, table);
    }

    /// dtable += the gradient of the table's rows that are here. dy[this rank's tokens, hidden].
    template <class Queue>
    void backward(Queue& queue, const micro_batch<A>& batch, tensor<A, axis::vocabulary, axis::hidden> dtable,
                  const std::int32_t* ids, tensor<const T, axis::tokens, axis::hidden> dy, workspace& w) const {
        if constexpr (Split) {
            const auto between = exchange(batch.shape);
            ops::embed_backward(
                queue, dtable, ids,
                between.gather(queue, batch.ranks, dy, between.whole(w.whole), "gradient of embedded tokens"), first());
        } else {
            ops::embed_backward(queue, dtable, ids, matrix<const T>{dy});
        }
    }

  private:
    [[nodiscard]] constexpr tensor_exchange exchange(extents shape) const { return {over, shape}; }
    /// Where this rank's rows of the table begin.
    [[nodiscard]] constexpr integer first() const { return over.rank * over.share(vocab_size); }
};

}  // namespace fathom::nn
