// Cross-entropy on the host, over the logits of some tokens at a time: a layer that walks chunks never holds
// tokens x vocabulary.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fathom/core/error.hpp>
#include <fathom/device/host/queue.hpp>
#include <fathom/ops/exponential.hpp>
#include <fathom/ops/lane_reduce.hpp>
#include <fathom/tensor/matrix.hpp>
#include <type_traits>

namespace fathom::ops {

/// A target that counts nowhere: neither in a loss nor in a gradient.
inline constexpr std::int32_t ignored_target = -100;

namespace detail {

inline void check_target(integer row, integer target, integer vocabulary) {
    if (target < 0 || target >= vocabulary)
        fail("cross_entropy: row ", row, " has the target ", target, ", expected an id in [0, ", vocabulary, ") or ",
             ignored_target, " to ignore it");
}

inline constexpr integer cross_entropy_rows = 4;

}  // namespace detail

/// For each row: losses = l - logits[target] with l = logsumexp(logits), z_losses = l^2 (if not null), and, in place of
/// the logits, the gradient of weight * loss + z_weight * l^2:
///     dlogits = weight * (softmax - onehot(target)) + z_weight * 2 l * softmax.
/// Rows with the target -100 give zeros everywhere. `weight` is 1 / the number of targets of the whole step that count.
/// logits[M, V], targets[M], losses[M], z_losses[M]. Errors: another target outside [0, V); names the row.
template <class A>
void cross_entropy(host::queue& queue, matrix<A> logits, const std::int32_t* targets, double weight, double z_weight,
                   double* losses, double* z_losses = nullptr) {
    queue.enqueue(pieces(logits.rows, detail::cross_entropy_rows), [=](integer task, int) {
        const integer end = std::min(logits.rows, (task + 1) * detail::cross_entropy_rows);
        for (integer r = task * detail::cross_entropy_rows; r < end; ++r) {
            A* __restrict row = logits.row(r);
            const integer target = targets[r];
            losses[r] = 0;
            if (z_losses != nullptr) z_losses[r] = 0;
            if (target == ignored_target) {
                std::fill_n(row, logits.width, A{0});
                continue;
            }
            detail::check_target(r, target, logits.width);
            const A most = lane_maximum<A>(row, logits.width);
            const double aimed = static_cast<double>(row[target]) - static_cast<double>(most);
            const A sum =
                lane_sum<A>(logits.width, [row, most](integer i) { return row[i] = exponential(row[i] - most); });
            const double above = std::log(static_cast<double>(sum));  // logsumexp - most, exact also for large logits
            const double log_sum = above + static_cast<double>(most);
            losses[r] = above - aimed;
            if (z_losses != nullptr) z_losses[r] = log_sum * log_sum;
            const A factor = static_cast<A>((weight + z_weight * 2 * log_sum) / static_cast<double>(sum));
            for (integer i = 0; i < logits.width; ++i) row[i] *= factor;
            row[target] -= static_cast<A>(weight);
        }
    });
}

/// The losses of `cross_entropy` alone: reads the logits and leaves them as they are.
template <class A>
void cross_entropy_forward(host::queue& queue, matrix<A> logits, const std::int32_t* targets, double* losses,
                           double* z_losses = nullptr) {
    using number = std::remove_const_t<A>;
    queue.enqueue(pieces(logits.rows, detail::cross_entropy_rows), [=](integer task, int) {
        const integer end = std::min(logits.rows, (task + 1) * detail::cross_entropy_rows);
        for (integer r = task * detail::cross_entropy_rows; r < end; ++r) {
            const number* __restrict row = logits.row(r);
            const integer target = targets[r];
            losses[r] = 0;
            if (z_losses != nullptr) z_losses[r] = 0;
            if (target == ignored_target) continue;
            detail::check_target(r, target, logits.width);
            const number most = lane_maximum<number>(row, logits.width);
            const double above = std::log(static_cast<double>(
                lane_sum<number>(logits.width, [row, most](integer i) { return exponential(row[i] - most); })));
            losses[r] = above - (static_cast<double>(row[target]) - static_cast<double>(most));
            if (z_losses != nullptr)
                z_losses[r] = (above + static_cast<double>(most)) * (above + static_cast<double>(most));
        }
    });
}

}  // namespace fathom::ops
