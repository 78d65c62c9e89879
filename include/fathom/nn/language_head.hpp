// The last product and its loss in one pass over pieces of the batch, so that tokens x vocabulary numbers never exist
// at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fathom/comm/all_reduce.hpp>
#include <fathom/core/number.hpp>
#include <fathom/nn/micro_batch.hpp>
#include <fathom/nn/project.hpp>
#include <fathom/nn/tensor_exchange.hpp>
#include <fathom/ops/cross_entropy.hpp>
#include <fathom/tensor/arena.hpp>

namespace fathom::nn {

/// Sums over the tokens of a step that count.
struct loss_sums {
    double cross_entropy = 0;
    double z = 0;
};

/// logits = x head^T, cross-entropy against targets and its gradients. Forward and backward are one pass, because the
/// weight of a token in the loss is known before: logits are made once, used and forgotten (as Liger Kernel's fused
/// linear cross-entropy).
/// Split: every tensor rank has its rows of the head, and gets and gives its share of the tokens; it makes its logits
/// of all tokens, a piece at a time, and the ranks reduce three numbers a token. Sums get the losses on the first of
/// them.
template <class T, bool Split = false> struct language_head {
    using A = accumulator_t<T>;
    using stream = tensor<T, axis::tokens, axis::hidden>;
    using const_stream = tensor<const T, axis::tokens, axis::hidden>;
    using logits_view = tensor<A, axis::tokens, axis::vocabulary>;
    using head_view = tensor<const T, axis::vocabulary, axis::hidden>;

    integer hidden_size = 0;
    integer vocab_size = 0;
    split_over over{};  // by vocabulary

    struct workspace {
        logits_view logits;
        double* losses = nullptr;
        double* z_losses = nullptr;
        integer rows = 0;
        stream whole;              // [tokens of all tensor ranks, hidden]: the input, then its gradient
        double* maxima = nullptr;  // [rows]
        double* sums = nullptr;    // [2, rows]
    };

    /// Tokens whose logits exist at once: 8 Mi numbers, at least 64 and at most 2048 tokens.
    [[nodiscard]] constexpr integer piece(integer tokens) const {
        return std::min(tokens, std::clamp<integer>((integer{8} << 20) / share() / 64 * 64, 64, 2048));
    }
    constexpr workspace work(arena& memory, extents shape) const {
        workspace w;
        w.rows = piece(shape.tokens());
        w.logits = memory.take<A>(w.rows, share());
        w.losses = memory.take<double>(w.rows);
        w.z_losses = memory.take<double>(w.rows);
        if constexpr (Split) {
            w.whole = exchange(shape).template take_whole<T>(memory, hidden_size);
            w.maxima = memory.take<double>(w.rows);
            w.sums = memory.take<double>(2 * w.rows);
        }
        return w;
    }
    [[nodiscard]] constexpr integer scratch() const { return ops::product_scratch<T>(); }

    /// Adds the losses of all tokens to `sums`, in their order; dx = the gradient of weight * cross-entropy + z_weight
    /// * z; dhead += its gradient. x and dx[this rank's tokens, hidden], targets[tokens of the shape].
    template <class Queue>
    void forward_backward(Queue& queue, const micro_batch<A>& batch, const_stream x, head_view head,
                          const std::int32_t* targets, double weight, double z_weight, workspace& w, stream dx,
                          tensor<A, axis::vocabulary, axis::hidden> dhead, loss_sums& sums) const {
        const const_stream all = gathered(queue, batch, x, w);
        const stream dall = divided() ? stream{exchange(batch.shape).whole(matrix<T>{w.whole})} : dx;
        for (integer first = 0; first < all.rows; first += w.rows) {
            const integer count = std::min(w.rows, all.rows - first);
            const const_stream piece{all.rows_at(first, count)};
            const logits_view logits{w.logits.rows_at(0, count)};
            project(queue, logits, piece, head);
            if constexpr (Split) {
                losses_of_slices(queue, batch, logits, targets + first, w);
                ops::cross_entropy_gradient<A>(queue, logits, targets + first, slice(), weight, z_weight, w.maxima,
                                               w.sums);
            } else {
                ops::cross_entropy<A>(queue, logits, targets + first, weight, z_weight, w.losses, w.z_losses);
            }
            add_losses(queue, w, count, sums);
            project_weight(queue, dhead, logits, piece);                             // logits are now their gradient
            project_input(queue, stream{dall.rows_at(first, count)}, logits, head);  // split, over the input
        }
        if constexpr (Split)
            if (divided())
                ops::copy(
                    queue, dx,
                    exchange(batch.shape).reduce_scatter(batch.ranks, matrix<T>{dall}, "gradient of head's input"));
    }

    /// The losses alone.
    template <class Queue>
    void forward(Queue& queue, const micro_batch<A>& batch, const_stream x, head_view head, const std::int32_t* targets,
                 workspace& w, loss_sums& sums) const {
        const const_stream all = gathered(queue, batch, x, w);
        for (integer first = 0; first < all.rows; first += w.rows) {
            const integer count = std::min(w.rows, all.rows - first);
            const logits_view logits{w.logits.rows_at(0, count)};
            project(queue, logits, const_stream{all.rows_at(first, count)}, head);
            if constexpr (Split)
                losses_of_slices(queue, batch, logits, targets + first, w);
            else
                ops::cross_entropy_forward<A>(queue, logits, targets + first, w.losses, w.z_losses);
            add_losses(queue, w, count, sums);
        }
    }

  private:
    [[nodiscard]] constexpr integer share() const { return over.share(vocab_size); }
    [[nodiscard]] constexpr bool divided() const { return Split && over.ranks > 1; }
    [[nodiscard]] constexpr ops::vocabulary_slice slice() const { return {over.rank * share(), vocab_size}; }
    [[nodiscard]] constexpr tensor_exchange exchange(extents shape) const { return {over, shape}; }
    template <class Queue>
    const_stream gathered(Queue& queue, const micro_batch<A>& batch, const_stream x, workspace& w) const {
        if constexpr (Split) {
            const auto between = exchange(batch.shape);
            return {between.gather(queue, batch.ranks, x, between.whole(matrix<T>{w.whole}), "input of head")};
        }
        return x;
    }
    /// Fills w.losses and w.z_losses from this rank's logits, which become exponentials.
    template <class Queue>
    void losses_of_slices(Queue& queue, const micro_batch<A>& batch, logits_view logits, const std::int32_t* targets,
                          workspace& w) const {
        ops::cross_entropy_maxima<A>(queue, logits, w.maxima);
        if (divided())
            batch.ranks->tensor.run(
                comm::all_reduce(w.maxima, logits.rows, comm::reduction::max).from("maxima of logits"));
        ops::cross_entropy_exponentials<A>(queue, logits, targets, slice(), w.maxima, w.sums);
        if (divided()) batch.ranks->tensor.run(comm::all_reduce(w.sums, 2 * logits.rows).from("sums of logits"));
        ops::cross_entropy_losses(queue, logits.rows, targets, w.maxima, w.sums, w.losses, w.z_losses);
    }
    template <class Queue> void add_losses(Queue& queue, const workspace& w, integer count, loss_sums& sums) const {
        if (over.rank != 0) return;
        queue.enqueue(1, [&](integer, int) {
            for (integer r = 0; r < count; ++r) {
                sums.cross_entropy += w.losses[r];
                sums.z += w.z_losses[r];
            }
        });
    }
};

}  // namespace fathom::nn
