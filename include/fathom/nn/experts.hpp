// The mixture of experts: routed experts chosen token by token, beside shared ones that see every token; nothing is
// dropped.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fathom/core/number.hpp>
#include <fathom/nn/choose_experts.hpp>
#include <fathom/nn/detail/hold_gradient.hpp>
#include <fathom/nn/feed_forward.hpp>
#include <fathom/nn/layer_routes.hpp>
#include <fathom/nn/micro_batch.hpp>
#include <fathom/nn/parameter.hpp>
#include <fathom/nn/project.hpp>
#include <fathom/ops/balance.hpp>
#include <fathom/ops/elementwise.hpp>
#include <fathom/ops/permutation.hpp>
#include <fathom/ops/router.hpp>
#include <fathom/ops/swiglu.hpp>
#include <fathom/tensor/arena.hpp>

namespace fathom::nn {

/// Sizes and routing of a layer of experts, named as in a Hugging Face config.
struct experts_facts {
    integer hidden_size = 0;
    integer moe_intermediate_size = 0;
    integer n_routed_experts = 0;
    integer n_shared_experts = 0;
    ops::router_facts router{};
};

/// y += shared(x) + sum over the chosen experts of weight * expert(x)   (DeepSeekMoE, 2024; V3 report, section 2.1.2).
/// The weight multiplies the activations before the down-projection: the same number, and no expert's output need be
/// kept.
template <class T> struct experts {
    using A = accumulator_t<T>;
    using facts = experts_facts;
    static constexpr const char* name = "experts";
    using tokens_hidden = tensor<T, axis::tokens, axis::hidden>;

    experts_facts of;
    recomputation again{};

    template <class E> struct parameters {
        tensor<E, axis::experts, axis::hidden> router;
        matrix<E>
            gate_up;     // [n_routed_experts * 2 * moe_intermediate_size, hidden]: gate above up, expert after expert
        matrix<E> down;  // [n_routed_experts * hidden, moe_intermediate_size]
        typename feed_forward<T>::template parameters<E> shared;
    };
    /// What is not trained by gradients: the router's bias, how many tokens each expert got in this step, and who else
    /// says which.
    struct buffers {
        matrix<A> bias;  // [1, n_routed_experts]; empty where the family has none
        matrix<integer> load;
        layer_routes routes{};
    };
    struct saved {
        tensor<const T, axis::tokens, axis::hidden> x;
        tensor<A, axis::tokens, axis::experts> scores;
        matrix<std::int32_t> ids;   // [tokens, num_experts_per_tok], ascending
        matrix<A> weights;          // of ids
        matrix<integer> offsets;    // [1, n_routed_experts + 1]: the grouped rows of each expert
        matrix<std::int32_t> rows;  // [1, tokens * k]: token of each grouped row
        matrix<std::int32_t> slot;  // [tokens, k]: grouped row of each choice
        matrix<A> row_weight;       // [1, tokens * k]
        tensor<T, axis::expert_tokens, axis::gate_up> gate_up;
        tensor<T, axis::expert_tokens, axis::intermediate> act;
        typename feed_forward<T>::saved shared;
    };
    struct deferred {
        tokens_hidden kept_dy;
        tensor<const T, axis::tokens, axis::hidden> dy;
        tensor<T, axis::expert_tokens, axis::intermediate> act;
        tensor<A, axis::tokens, axis::experts> dlogits;
        typename feed_forward<T>::deferred shared;
    };
    struct workspace {
        tensor<A, axis::tokens, axis::experts> logits, dscores;
        matrix<A> dweights, drow_weight;
        tensor<T, axis::expert_tokens, axis::intermediate> act, dact;
        matrix<T> rows;  // [tokens * k, hidden]: outputs of experts, or gradients of their inputs
        typename feed_forward<T>::workspace shared;
    };

    [[nodiscard]] constexpr integer top_k() const { return of.router.top_k; }
    [[nodiscard]] constexpr bool has_shared() const { return of.n_shared_experts > 0; }
    [[nodiscard]] constexpr feed_forward<T> shared() const {
        return {{of.hidden_size, of.moe_intermediate_size * of.n_shared_experts}, again};
    }

    template <class P, class Visit> constexpr void each_parameter(P& p, Visit&& visit) const {
        const integer e = of.n_routed_experts, h = of.hidden_size, i = of.moe_intermediate_size;
        visit(p.router, weight("gate.weight", e, h));
        visit(p.gate_up,
              storage{
                  .rows = e * 2 * i,
                  .width = h,
                  .parts = {{{.name = "experts.*.gate_proj.weight", .rows = i, .first = 0, .count = e, .step = 2 * i},
                             {.name = "experts.*.up_proj.weight", .rows = i, .first = i, .count = e, .step = 2 * i}}}});
        visit(
            p.down,
            storage{.rows = e * h,
                    .width = i,
                    .parts = {{{.name = "experts.*.down_proj.weight", .rows = h, .first = 0, .count = e, .step = h}}}});
        if (has_shared())
            shared().each_parameter(p.shared, below<std::remove_reference_t<Visit>>{"shared_experts.", visit});
    }
    template <class Visit> constexpr void each_buffer(buffers& b, Visit&& visit) const {
        if (of.router.bias) visit(b.bias, bias("gate.e_score_correction_bias", of.n_routed_experts));
        visit(b.load, storage{.rows = 1, .width = of.n_routed_experts, .start = initial::zero, .vector = true});
    }

    constexpr saved keep(arena& memory, extents shape) const {
        const integer n = shape.tokens(), e = of.n_routed_experts, r = n * top_k();
        saved s;
        s.scores = memory.take<A>(n, e);
        s.ids = memory.take<std::int32_t>(n, top_k());
        s.weights = memory.take<A>(n, top_k());
        s.offsets = memory.take<integer>(1, e + 1);
        s.rows = memory.take<std::int32_t>(1, r);
        s.slot = memory.take<std::int32_t>(n, top_k());
        s.row_weight = memory.take<A>(1, r);
        s.gate_up = memory.take<T>(r, 2 * of.moe_intermediate_size);
        if (!again.swiglu) s.act = memory.take<T>(r, of.moe_intermediate_size);
        if (has_shared()) s.shared = shared().keep(memory, shape);
        return s;
    }
    constexpr deferred defer(arena& memory, extents shape, bool apart) const {
        const integer n = shape.tokens(), r = n * top_k();
        deferred d;
        if (apart) d.kept_dy = memory.take<T>(n, of.hidden_size);
        if (again.swiglu) d.act = memory.take<T>(r, of.moe_intermediate_size);
        d.dlogits = memory.take<A>(n, of.n_routed_experts);
        if (has_shared()) d.shared = shared().defer(memory, shape, false);  // dy is kept once, here
        return d;
    }
    constexpr workspace work(arena& memory, extents shape) const {
        const integer n = shape.tokens(), e = of.n_routed_experts, r = n * top_k();
        workspace w;
        w.logits = memory.take<A>(n, e);
        w.dscores = memory.take<A>(n, e);
        w.dweights = memory.take<A>(n, top_k());
        w.drow_weight = memory.take<A>(1, r);
        if (again.swiglu) w.act = memory.take<T>(r, of.moe_intermediate_size);
        w.dact = memory.take<T>(r, of.moe_intermediate_size);
        w.rows = memory.take<T>(r, of.hidden_size);
        if (has_shared()) w.shared = shared().work(memory, shape);
        return w;
    }
    [[nodiscard]] constexpr integer scratch(extents shape) const {
        const integer own = std::max(
            {ops::product_scratch<T>(), ops::router_scratch<A>(of.router), ops::balance_scratch<A>(of.router)});
        return has_shared() ? std::max(own, shared().scratch(shape)) : own;
    }
    [[nodiscard]] constexpr integer matrix_parameters() const {
        return of.hidden_size * (of.n_routed_experts + 3 * of.moe_intermediate_size * (top_k() + of.n_shared_experts));
    }

    template <class Queue>
    void forward(Queue& queue, const micro_batch<A>& batch, const parameters<T>& p, buffers& b,
                 tensor<const T, axis::tokens, axis::hidden> x, saved& s, workspace& w, tokens_hidden y) const {
        const integer e = of.n_routed_experts, i = of.moe_intermediate_size, h = of.hidden_size;
        s.x = x;
        project(queue, w.logits, x, p.router);
        choose_experts<A>(queue, batch, of.router, b.routes, w.logits, b.bias.data, s.scores, s.ids, s.weights);
        ops::group_rows(queue, s.ids, e, s.offsets.data, s.rows.data, s.slot.data);
        ops::scatter_scalars<A>(queue, s.row_weight.data, s.weights.data, s.slot.data, s.slot.size());
        const auto act = again.swiglu ? w.act : s.act;
        ops::grouped_product(queue, s.gate_up, x, p.gate_up, 2 * i, s.offsets.data, e, s.rows.data);
        ops::swiglu<T>(queue, act, s.gate_up, s.row_weight.data);
        ops::grouped_product(queue, w.rows, act, p.down, h, s.offsets.data, e);
        ops::combine_rows<T>(queue, y, w.rows, s.slot.data, top_k(), true);
        if (has_shared()) shared().forward(queue, p.shared, x, s.shared, w.shared, y);
    }

    /// What a forward adds to the step besides y: the load of each expert, and the balance loss. Apart from forward, so
    /// that a recomputed forward does not count twice.
    template <class Queue> void account(Queue& queue, const micro_batch<A>& batch, buffers& b, const saved& s) const {
        ops::add_load(queue, b.load.data, s.offsets.data, of.n_routed_experts);
        if (batch.balance_weight != 0) balance(queue, batch, s, batch.balance_loss, {});
    }

    /// dx = the gradient of the input; afterwards s.gate_up holds its gradient.
    template <class Queue>
    void backward_input(Queue& queue, const micro_batch<A>& batch, const parameters<T>& p, const buffers&, saved& s,
                        tensor<const T, axis::tokens, axis::hidden> dy, deferred& d, workspace& w,
                        tokens_hidden dx) const {
        const integer e = of.n_routed_experts, i = of.moe_intermediate_size, h = of.hidden_size;
        detail::hold_gradient(queue, dy, d);
        if (again.swiglu)
            ops::swiglu<T>(queue, d.act, s.gate_up, s.row_weight.data);
        else
            d.act = s.act;
        ops::grouped_product_input(queue, w.dact, dy, p.down, h, s.offsets.data, e, false, s.rows.data);
        ops::swiglu_backward<T>(queue, s.gate_up, w.dact, s.gate_up, s.row_weight.data, w.drow_weight.data);
        ops::grouped_product_input(queue, w.rows, s.gate_up, p.gate_up, 2 * i, s.offsets.data, e, false);
        ops::combine_rows<T>(queue, dx, w.rows, s.slot.data, top_k(), false);

        ops::gather_scalars<A>(queue, w.dweights.data, w.drow_weight.data, s.slot.data, s.slot.size());
        matrix<const A> extra;
        if (batch.balance_weight != 0) {
            ops::fill_zero(queue, w.dscores.data, w.dscores.size());
            balance(queue, batch, s, nullptr, w.dscores);
            extra = w.dscores;
        }
        ops::route_backward<A>(queue, of.router, d.dlogits, w.dweights, s.scores, s.ids, s.weights, extra);
        project_input(queue, dx, d.dlogits, p.router, true);
        if (!has_shared()) return;
        s.shared.x = s.x;  // which may have been recomputed elsewhere
        shared().backward_input(queue, p.shared, s.shared, d.dy, d.shared, w.shared, dx, true);
    }

    template <class Queue>
    void backward_weight(Queue& queue, const saved& s, const deferred& d, parameters<A>& gradients) const {
        const integer e = of.n_routed_experts, i = of.moe_intermediate_size, h = of.hidden_size;
        project_weight(queue, gradients.router, d.dlogits, s.x);
        ops::grouped_product_weight(queue, gradients.gate_up, s.gate_up, s.x, 2 * i, s.offsets.data, e, s.rows.data);
        ops::grouped_product_weight(queue, gradients.down, d.dy, d.act, h, s.offsets.data, e, nullptr, s.rows.data);
        if (has_shared()) shared().backward_weight(queue, s.shared, d.shared, gradients.shared);
    }

    /// visit(operation, name, view) for what forward kept, in the order in which it was made; rows of experts come with
    /// their grouped_rows.
    template <class Visit> void each_saved(const saved& s, Visit&& visit) const {
        const grouped_rows groups{s.rows.data, s.offsets.data};
        visit("router", "scores", s.scores);
        visit("router", "weights", s.weights);
        visit("gate_proj and up_proj of experts", "gate_up", s.gate_up, groups);
        visit("weighted swiglu of experts", "act", s.act, groups);
        if (has_shared()) {
            visit("gate_proj and up_proj of shared experts", "gate_up", s.shared.gate_up);
            visit("swiglu of shared experts", "act", s.shared.act);
        }
    }

  private:
    /// V3 counts what the scores alone would choose, V2 and DeepSeekMoE what was chosen; all a sequence at a time, so
    /// that the loss does not depend on how a step is cut in micro-batches.
    template <class Queue>
    void balance(Queue& queue, const micro_batch<A>& batch, const saved& s, double* loss, matrix<A> dscores) const {
        const bool by_choice = of.router.score == ops::router_facts::score_kind::softmax;
        ops::balance_loss<A>(queue, of.router, batch.shape.sequences, batch.shape.length, s.scores,
                             batch.balance_weight * static_cast<double>(batch.shape.sequences), loss, dscores, 1,
                             by_choice ? matrix<const std::int32_t>{s.ids} : matrix<const std::int32_t>{});
    }
};

}  // namespace fathom::nn
