// RMSNorm on the host: the norm before every attention, feed-forward, latent and head of DeepSeek's models.
#pragma once

#include <algorithm>
#include <cmath>
#include <fathom/core/number.hpp>
#include <fathom/device/host/queue.hpp>
#include <fathom/ops/lane_reduce.hpp>
#include <fathom/tensor/matrix.hpp>
#include <type_traits>

namespace fathom::ops {

/// Rows of one task of RMSNorm; one partial sum of the gain's gradient each.
inline constexpr integer rms_norm_rows = 32;

/// y = gain * (x * r), r = 1 / sqrt(mean(x^2) + epsilon) of each row; r is kept in inverse_rms[M] for the backward.
/// The normalised value is rounded to T before the gain, as Hugging Face's DeepseekV3RMSNorm does.
/// x[M, W], y[M, W], gain[W]; y may be x.
template <class T>
void rms_norm(host::queue& queue, matrix<T> y, accumulator_t<T>* inverse_rms, std::type_identity_t<matrix<const T>> x,
              const T* gain, double epsilon) {
    using A = accumulator_t<T>;
    queue.enqueue(pieces(x.rows, rms_norm_rows), [=](integer task, int) {
        const integer width = x.width;
        const integer end = std::min(x.rows, (task + 1) * rms_norm_rows);
        for (integer r = task * rms_norm_rows; r < end; ++r) {
            const T* in = x.row(r);
            T* out = y.row(r);
            const A squares = lane_sum<A>(width, [in](integer i) {
                const A value = static_cast<A>(in[i]);
                return value * value;
            });
            const A inverse = A{1} / std::sqrt(squares / static_cast<A>(width) + static_cast<A>(epsilon));
            inverse_rms[r] = inverse;
            for (integer i = 0; i < width; ++i) {
                const T normalised = static_cast<T>(static_cast<A>(in[i]) * inverse);
                out[i] = static_cast<T>(static_cast<A>(gain[i]) * static_cast<A>(normalised));
            }
        }
    });
}

/// The backward of `rms_norm`. With n = x * r and g = gain * dy:
///     dx (+)= r * (g - n * mean(g * n)),    dgain += sum over rows of dy * n.
/// `accumulate` adds to dx, otherwise dx is not read. dgain is summed in pieces of `rms_norm_rows` rows, then over the
/// pieces in order. dx[M, W], dgain[W], dy[M, W], x[M, W], inverse_rms[M], partials[pieces(M, rms_norm_rows), W]
/// (overwritten); dx may be dy.
template <class T>
void rms_norm_backward(host::queue& queue, matrix<T> dx, bool accumulate, accumulator_t<T>* dgain,
                       std::type_identity_t<matrix<const T>> dy, std::type_identity_t<matrix<const T>> x,
                       const accumulator_t<T>* inverse_rms, const T* gain, matrix<accumulator_t<T>> partials) {
    using A = accumulator_t<T>;
    const integer width = x.width;
    const integer tasks = pieces(x.rows, rms_norm_rows);
    queue.enqueue(tasks, [=](integer task, int) {
        A* __restrict sums = partials.row(task);
        for (integer i = 0; i < width; ++i) sums[i] = A{0};
        const integer end = std::min(x.rows, (task + 1) * rms_norm_rows);
        for (integer r = task * rms_norm_rows; r < end; ++r) {
            const T* in = x.row(r);
            const T* up = dy.row(r);
            T* down = dx.row(r);
            const A inverse = inverse_rms[r];
            const A along =
                lane_sum<A>(width,
                            [in, up, gain](integer i) {
                                return static_cast<A>(gain[i]) * static_cast<A>(up[i]) * static_cast<A>(in[i]);
                            }) *
                inverse / static_cast<A>(width);
            for (integer i = 0; i < width; ++i) {
                const A normalised = static_cast<A>(in[i]) * inverse;
                const A slope = static_cast<A>(up[i]);
                sums[i] += slope * static_cast<A>(static_cast<T>(normalised));
                const A change = inverse * (static_cast<A>(gain[i]) * slope - normalised * along);
                down[i] = static_cast<T>(accumulate ? static_cast<A>(down[i]) + change : change);
            }
        }
    });
    constexpr integer columns = 64;
    if (tasks == 0) return;
    queue.enqueue(pieces(width, columns), [=](integer task, int) {
        const integer first = task * columns;
        const integer count = std::min(columns, width - first);
        A* __restrict total = dgain + first;
        for (integer piece = 0; piece < tasks; ++piece) {
            const A* __restrict part = partials.row(piece) + first;
            for (integer i = 0; i < count; ++i) total[i] += part[i];
        }
    });
}

}  // namespace fathom::ops
