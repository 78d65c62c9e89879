// The last product and its loss in one pass over pieces of the batch, so that tokens x vocabulary numbers never exist
// at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fathom/core/number.hpp>
#include <fathom/nn/micro_batch.hpp>
#include <fathom/nn/project.hpp>
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
template <class T> struct language_head {
    using A = accumulator_t<T>;

    integer hidden_size = 0;
    integer vocab_size = 0;

    struct workspace {
        tensor<A, axis::tokens, axis::vocabulary> logits;
        double* losses = nullptr;
        double* z_losses = nullptr;
        integer rows = 0;
    };

    /// Tokens whose logits exist at once: 8 Mi numbers, at least 64 and at most 2048 tokens.
    [[nodiscard]] constexpr integer piece(integer tokens) const {
        return std::min(tokens, std::clamp<integer>((integer{8} << 20) / vocab_size / 64 * 64, 64, 2048));
    }
    constexpr workspace work(arena& memory, extents shape) const {
        workspace w;
        w.rows = piece(shape.tokens());
        w.logits = memory.take<A>(w.rows, vocab_size);
        w.losses = memory.take<double>(w.rows);
        w.z_losses = memory.take<double>(w.rows);
        return w;
    }
    [[nodiscard]] constexpr integer scratch() const { return ops::product_scratch<T>(); }

    /// Adds the losses of all tokens to `sums`, in their order; dx = the gradient of weight * cross-entropy + z_weight
    /// * z; dhead += its gradient.
    template <class Queue>
    void forward_backward(Queue& queue, tensor<const T, axis::tokens, axis::hidden> x,
                          tensor<const T, axis::vocabulary, axis::hidden> head, const std::int32_t* targets,
                          double weight, double z_weight, workspace& w, tensor<T, axis::tokens, axis::hidden> dx,
                          tensor<A, axis::vocabulary, axis::hidden> dhead, loss_sums& sums) const {
        for (integer first = 0; first < x.rows; first += w.rows) {
            const integer count = std::min(w.rows, x.rows - first);
            const tensor<const T, axis::tokens, axis::hidden> piece{x.rows_at(first, count)};
            const tensor<A, axis::tokens, axis::vocabulary> logits{w.logits.rows_at(0, count)};
            project(queue, logits, piece, head);
            ops::cross_entropy<A>(queue, logits, targets + first, weight, z_weight, w.losses, w.z_losses);
            add_losses(queue, w, count, sums);
            project_input(queue, tensor<T, axis::tokens, axis::hidden>{dx.rows_at(first, count)}, logits,
                          head);  // now their gradient
            project_weight(queue, dhead, logits, piece);
        }
    }

    /// The losses alone.
    template <class Queue>
    void forward(Queue& queue, tensor<const T, axis::tokens, axis::hidden> x,
                 tensor<const T, axis::vocabulary, axis::hidden> head, const std::int32_t* targets, workspace& w,
                 loss_sums& sums) const {
        for (integer first = 0; first < x.rows; first += w.rows) {
            const integer count = std::min(w.rows, x.rows - first);
            const tensor<A, axis::tokens, axis::vocabulary> logits{w.logits.rows_at(0, count)};
            project(queue, logits, tensor<const T, axis::tokens, axis::hidden>{x.rows_at(first, count)}, head);
            ops::cross_entropy_forward<A>(queue, logits, targets + first, w.losses, w.z_losses);
            add_losses(queue, w, count, sums);
        }
    }

  private:
    template <class Queue> static void add_losses(Queue& queue, const workspace& w, integer count, loss_sums& sums) {
        queue.enqueue(1, [&](integer, int) {
            for (integer r = 0; r < count; ++r) {
                sums.cross_entropy += w.losses[r];
                sums.z += w.z_losses[r];
            }
        });
    }
};

}  // namespace fathom::nn
