// Cross-entropy over a vocabulary that ranks split: three steps on the host, between which its caller reduces a number
// or two a token over the ranks.
#pragma once

#include <fathom/ops/cross_entropy/host.hpp>

namespace fathom::ops {

/// The rows of the vocabulary that this rank's logits are of.
struct vocabulary_slice {
    integer first = 0;
    integer whole = 0;
};

/// First step: the largest of this rank's logits of each row, to be reduced to the largest of all ranks.
/// logits[M, V / ranks], maxima[M].
template <class A> void cross_entropy_maxima(host::queue& queue, matrix<A> logits, double* maxima) {
    queue.enqueue(pieces(logits.rows, detail::cross_entropy_rows), [=](integer task, int) {
        const integer end = std::min(logits.rows, (task + 1) * detail::cross_entropy_rows);
        for (integer r = task * detail::cross_entropy_rows; r < end; ++r)
            maxima[r] = static_cast<double>(lane_maximum<A>(logits.row(r), logits.width));
    });
}

/// Second step: in place of the logits, exp(logits - maxima); sums[r] = their sum, sums[M + r] = the target's logit
/// less the maximum if this rank has it, else zero: both to be summed over ranks. Rows with the target -100 become
/// zeros. logits[M, V / ranks], targets[M], maxima[M], sums[2, M]. Errors: a target outside [0, V); names the row.
template <class A>
void cross_entropy_exponentials(host::queue& queue, matrix<A> logits, const std::int32_t* targets,
                                vocabulary_slice slice, const double* maxima, double* sums) {
    queue.enqueue(pieces(logits.rows, detail::cross_entropy_rows), [=](integer task, int) {
        const integer end = std::min(logits.rows, (task + 1) * detail::cross_entropy_rows);
        for (integer r = task * detail::cross_entropy_rows; r < end; ++r) {
            A* __restrict row = logits.row(r);
            const integer target = targets[r];
            double& aimed = sums[logits.rows + r];
            sums[r] = aimed = 0;
            if (target == ignored_target) {
                std::fill_n(row, logits.width, A{0});
                continue;
            }
            detail::check_target(r, target, slice.whole);
            const integer here = target - slice.first;
            if (here >= 0 && here < logits.width) aimed = static_cast<double>(row[here]) - maxima[r];
            const A most = static_cast<A>(maxima[r]);
            sums[r] = static_cast<double>(
                lane_sum<A>(logits.width, [row, most](integer i) { return row[i] = exponential(row[i] - most); }));
        }
    });
}

/// The losses of `cross_entropy`, the same on all ranks, from the reduced maxima and sums. maxima[M], sums[2, M],
/// losses[M], z_losses[M].
inline void cross_entropy_losses(host::queue& queue, integer rows, const std::int32_t* targets, const double* maxima,
                                 const double* sums, double* losses, double* z_losses) {
    queue.enqueue(1, [=](integer, int) {
        for (integer r = 0; r < rows; ++r) {
            const bool counts = targets[r] != ignored_target;
            const double above = counts ? std::log(sums[r]) : 0;
            losses[r] = above - sums[rows + r];
            z_losses[r] = counts ? (above + maxima[r]) * (above + maxima[r]) : 0;
        }
    });
}

/// Third step: this rank's part of the gradient of `cross_entropy`, in place of the exponentials.
/// exponentials[M, V / ranks], targets[M], maxima[M], sums[2, M].
template <class A>
void cross_entropy_gradient(host::queue& queue, matrix<A> exponentials, const std::int32_t* targets,
                            vocabulary_slice slice, double weight, double z_weight, const double* maxima,
                            const double* sums) {
    queue.enqueue(pieces(exponentials.rows, detail::cross_entropy_rows), [=](integer task, int) {
        const integer end = std::min(exponentials.rows, (task + 1) * detail::cross_entropy_rows);
        for (integer r = task * detail::cross_entropy_rows; r < end; ++r) {
            if (targets[r] == ignored_target) continue;
            A* __restrict row = exponentials.row(r);
            const double log_sum = std::log(sums[r]) + maxima[r];
            const A factor = static_cast<A>((weight + z_weight * 2 * log_sum) / sums[r]);
            for (integer i = 0; i < exponentials.width; ++i) row[i] *= factor;
            const integer here = targets[r] - slice.first;
            if (here >= 0 && here < exponentials.width) row[here] -= static_cast<A>(weight);
        }
    });
}

}  // namespace fathom::ops
