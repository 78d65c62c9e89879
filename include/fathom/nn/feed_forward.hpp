// The dense feed-forward layer of every family (SwiGLU), also used for shared experts.
#pragma once

#include <fathom/core/number.hpp>
#include <fathom/nn/detail/hold_gradient.hpp>
#include <fathom/nn/micro_batch.hpp>
#include <fathom/nn/parameter.hpp>
#include <fathom/nn/project.hpp>
#include <fathom/ops/elementwise.hpp>
#include <fathom/ops/swiglu.hpp>
#include <fathom/tensor/arena.hpp>

namespace fathom::nn {

/// Sizes of a dense feed-forward layer.
struct feed_forward_facts {
    integer hidden_size = 0;
    integer intermediate_size = 0;
    split_over tensor{};  // by intermediate size
};

/// y += down(silu(gate(x)) * up(x))   (Shazeer, "GLU variants improve transformer", 2020)
/// Where tensor ranks split it, y and the gradient of x are parts of sums over them.
template <class T> struct feed_forward {
    using A = accumulator_t<T>;
    using facts = feed_forward_facts;
    static constexpr const char* name = "feed-forward";

    feed_forward_facts of;
    recomputation again{};

    template <class E> struct parameters {
        tensor<E, axis::gate_up, axis::hidden> gate_up;
        tensor<E, axis::hidden, axis::intermediate> down;
    };
    struct saved {
        tensor<const T, axis::tokens, axis::hidden> x;
        tensor<T, axis::tokens, axis::gate_up> gate_up;
        tensor<T, axis::tokens, axis::intermediate> act;
    };
    struct deferred {
        tensor<T, axis::tokens, axis::intermediate> act;
        tensor<T, axis::tokens, axis::hidden> kept_dy;
        tensor<const T, axis::tokens, axis::hidden> dy;
    };
    struct workspace {
        tensor<T, axis::tokens, axis::intermediate> act, dact;
    };

    /// This rank's part of the intermediate size.
    [[nodiscard]] constexpr integer share() const { return of.tensor.share(of.intermediate_size); }

    template <class P, class Visit> constexpr void each_parameter(P& p, Visit&& visit) const {
        const integer h = of.hidden_size, i = of.intermediate_size;
        visit(p.gate_up,
              storage{.rows = 2 * share(),
                      .width = h,
                      .parts = {{rows_over(of.tensor, {.name = "gate_proj.weight", .rows = i}),
                                 rows_over(of.tensor, {.name = "up_proj.weight", .rows = i, .first = share()})}}});
        visit(p.down, columns_over(of.tensor, weight("down_proj.weight", h, i)));
    }

    constexpr saved keep(arena& memory, extents shape) const {
        saved s;
        s.gate_up = memory.take<T>(shape.tokens(), 2 * share());
        if (!again.swiglu) s.act = memory.take<T>(shape.tokens(), share());
        return s;
    }
    constexpr deferred defer(arena& memory, extents shape, bool apart) const {
        deferred d;
        if (again.swiglu) d.act = memory.take<T>(shape.tokens(), share());
        if (apart) d.kept_dy = memory.take<T>(shape.tokens(), of.hidden_size);
        return d;
    }
    constexpr workspace work(arena& memory, extents shape) const {
        workspace w;
        if (again.swiglu) w.act = memory.take<T>(shape.tokens(), share());
        w.dact = memory.take<T>(shape.tokens(), share());
        return w;
    }
    [[nodiscard]] constexpr integer scratch(extents) const { return ops::product_scratch<T>(); }
    /// Floating-point operations of the forward products of one micro-batch.
    [[nodiscard]] constexpr integer matrix_parameters() const { return 3 * of.hidden_size * of.intermediate_size; }

    template <class Queue>
    void forward(Queue& queue, const parameters<T>& p, tensor<const T, axis::tokens, axis::hidden> x, saved& s,
                 workspace& w, tensor<T, axis::tokens, axis::hidden> y) const {
        s.x = x;
        const auto act = again.swiglu ? w.act : s.act;
        project(queue, s.gate_up, x, p.gate_up);
        ops::swiglu<T>(queue, act, s.gate_up, nullptr);
        project(queue, y, act, p.down, true);
    }

    /// dx (+)= the gradient of the input; afterwards s.gate_up holds its gradient.
    template <class Queue>
    void backward_input(Queue& queue, const parameters<T>& p, saved& s, tensor<const T, axis::tokens, axis::hidden> dy,
                        deferred& d, workspace& w, tensor<T, axis::tokens, axis::hidden> dx, bool accumulate) const {
        detail::hold_gradient(queue, dy, d);
        if (again.swiglu)
            ops::swiglu<T>(queue, d.act, s.gate_up, nullptr);
        else
            d.act = s.act;
        project_input(queue, w.dact, dy, p.down);
        ops::swiglu_backward<T>(queue, s.gate_up, w.dact, s.gate_up, nullptr, nullptr);
        project_input(queue, dx, s.gate_up, p.gate_up, accumulate);
    }

    template <class Queue>
    void backward_weight(Queue& queue, const saved& s, const deferred& d, parameters<A>& gradients) const {
        project_weight(queue, gradients.down, d.dy, d.act);
        project_weight(queue, gradients.gate_up, s.gate_up, s.x);
    }

    /// visit(operation, name, view) for what forward kept, in the order in which it was made.
    template <class Visit> void each_saved(const saved& s, Visit&& visit) const {
        visit("gate_proj and up_proj", "gate_up", s.gate_up);
        visit("swiglu", "act", s.act);
    }
};

}  // namespace fathom::nn
