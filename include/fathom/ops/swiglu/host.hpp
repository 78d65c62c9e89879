// SwiGLU and its gradient: one pass over gate and up, with the router's weight of a row folded in, so that what experts
// give back needs only to be added.
#pragma once

#include <fathom/core/number.hpp>
#include <fathom/device/host/queue.hpp>
#include <fathom/ops/exponential.hpp>
#include <type_traits>

namespace fathom::ops {

namespace detail {

/// Numbers worked on at once: a few vectors of any machine, and the partial sums of a row.
inline constexpr integer swiglu_lanes = 64;

/// Rows of a task of about 16 thousand numbers.
constexpr integer swiglu_rows(integer width) { return width >= 16'384 ? 1 : 16'384 / (width > 0 ? width : 1); }

/// From gate, up and the gradient g of the activation: the gradients by gate and up, and g * silu(gate) * up.
template <class A, class T>
void swiglu_backward_lanes(integer lanes, const T* dact, A scale, const T* gate, const T* up, T* dgate, T* dup,
                           A* sums) {
    A g[swiglu_lanes], u[swiglu_lanes],
        d[swiglu_lanes];  // copies, because the gradients may overwrite what they are of
    for (integer i = 0; i < lanes; ++i) g[i] = static_cast<A>(gate[i]), u[i] = static_cast<A>(up[i]);
    for (integer i = 0; i < lanes; ++i) d[i] = static_cast<A>(dact[i]);
    for (integer i = 0; i < lanes; ++i) {
        const A s = logistic(g[i]), silu = g[i] * s;
        sums[i] += d[i] * silu * u[i];
        d[i] *= scale;
        u[i] *= d[i] * (s + silu * (A{1} - s));
        d[i] *= silu;
    }
    for (integer i = 0; i < lanes; ++i) dgate[i] = static_cast<T>(u[i]), dup[i] = static_cast<T>(d[i]);
}

}  // namespace detail

/// act[rows, width] = silu(gate) * up * scale with silu(x) = x / (1 + e^-x) (Shazeer, "GLU variants improve
/// Transformer", 2020), where gate_up[rows, 2 width] holds gate in its first columns and up in its last, and scale is
/// row_scale[row], or 1 if that is null.
template <class T>
void swiglu(host::queue& queue, matrix<T> act, matrix<const std::type_identity_t<T>> gate_up,
            const accumulator_t<T>* row_scale = nullptr) {
    using A = accumulator_t<T>;
    const integer width = act.width, rows = detail::swiglu_rows(width);
    queue.enqueue(pieces(act.rows, rows), [&](integer task, int) {
        for (integer r = task * rows; r < act.rows && r < (task + 1) * rows; ++r) {
            const T* __restrict gate = gate_up.row(r);
            const T* __restrict up = gate + width;
            T* __restrict out = act.row(r);
            const A scale = row_scale == nullptr ? A{1} : row_scale[r];
            for (integer c = 0; c < width; ++c) {
                const A g = static_cast<A>(gate[c]);
                out[c] = static_cast<T>(g * logistic(g) * static_cast<A>(up[c]) * scale);
            }
        }
    });
}

/// The gradients of `swiglu` from dact[rows, width]: dgate_up[rows, 2 width], which may be gate_up itself, and, unless
/// null, drow_scale[rows].
template <class T>
void swiglu_backward(host::queue& queue, matrix<T> dgate_up, matrix<const std::type_identity_t<T>> dact,
                     matrix<const std::type_identity_t<T>> gate_up, const accumulator_t<T>* row_scale = nullptr,
                     accumulator_t<T>* drow_scale = nullptr) {
    using A = accumulator_t<T>;
    constexpr integer lanes = detail::swiglu_lanes;
    const integer width = dact.width, rows = detail::swiglu_rows(width);
    queue.enqueue(pieces(dact.rows, rows), [&](integer task, int) {
        for (integer r = task * rows; r < dact.rows && r < (task + 1) * rows; ++r) {
            const A scale = row_scale == nullptr ? A{1} : row_scale[r];
            A sums[lanes]{};
            const T* gate = gate_up.row(r);
            T* dgate = dgate_up.row(r);
            integer c = 0;
            for (; c + lanes <= width; c += lanes)
                detail::swiglu_backward_lanes<A>(lanes, dact.row(r) + c, scale, gate + c, gate + width + c, dgate + c,
                                                 dgate + width + c, sums);
            if (c < width)
                detail::swiglu_backward_lanes<A>(width - c, dact.row(r) + c, scale, gate + c, gate + width + c,
                                                 dgate + c, dgate + width + c, sums);
            if (drow_scale != nullptr) {
                A sum{};
                for (const A part : sums) sum += part;
                drow_scale[r] = sum;
            }
        }
    });
}

}  // namespace fathom::ops
