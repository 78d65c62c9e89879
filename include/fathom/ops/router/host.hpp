// Routing: from logits to experts and weights, its gradient, and the bias that balances loads.
#pragma once

#include <cstdint>
#include <fathom/core/error.hpp>
#include <fathom/device/host/queue.hpp>
#include <fathom/ops/exponential.hpp>
#include <fathom/ops/router/best.hpp>
#include <fathom/ops/router/facts.hpp>
#include <type_traits>

namespace fathom::ops {

/// The scratch of a worker that `route` asks for.
template <class A> constexpr integer router_scratch(const router_facts& facts) {
    arena pieces;
    pieces.take<A>(facts.top_k);
    pieces.take<A>(facts.topk_group);
    pieces.take<std::int32_t>(facts.topk_group);
    return pieces.used();
}

namespace detail {

inline constexpr integer router_tokens = 64;  // tokens of a task

/// Scores of one token.
template <class A> void router_scores(const router_facts& facts, const A* logits, A* scores) {
    const integer experts = facts.experts;
    if (facts.score == router_facts::score_kind::sigmoid) {
        for (integer e = 0; e < experts; ++e) scores[e] = logistic(logits[e]);
        return;
    }
    A largest = logits[0], sum{};
    for (integer e = 1; e < experts; ++e) largest = logits[e] > largest ? logits[e] : largest;
    for (integer e = 0; e < experts; ++e) scores[e] = exponential(logits[e] - largest);
    for (integer e = 0; e < experts; ++e) sum += scores[e];
    for (integer e = 0; e < experts; ++e) scores[e] /= sum;
}

/// The experts of one token, ascending: the best by score + bias in its best groups.
template <class A>
void router_choice(const router_facts& facts, const A* scores, const A* bias, std::int32_t* ids, arena scratch) {
    const integer size = facts.experts / facts.groups;
    const auto choice = [&](integer e) { return bias == nullptr ? scores[e] : scores[e] + bias[e]; };
    best<A> experts{scratch.take<A>(facts.top_k), ids, facts.top_k};
    const auto offer_group = [&](integer group) {
        for (integer e = group * size; e < (group + 1) * size; ++e) experts.offer(choice(e), e);
    };
    if (facts.topk_group == facts.groups) {
        for (integer g = 0; g < facts.groups; ++g) offer_group(g);
    } else {
        auto* kept = scratch.take<std::int32_t>(facts.topk_group);
        best<A> groups{scratch.take<A>(facts.topk_group), kept, facts.topk_group};
        for (integer g = 0; g < facts.groups; ++g) {
            A first = choice(g * size), second{};
            bool one = true;
            for (integer e = g * size + 1; e < (g + 1) * size; ++e) {
                const A here = choice(e);
                if (here > first)
                    second = first, first = here;
                else if (one || here > second)
                    second = here;
                one = false;
            }
            groups.offer(facts.group_score == router_facts::group_kind::best_two ? first + second : first, g);
        }
        groups.sort_by_place();  // so that ties among experts go to the lower index
        for (integer g = 0; g < facts.topk_group; ++g) offer_group(kept[g]);
    }
    experts.sort_by_place();
}

inline void check_router(const router_facts& facts, integer experts, integer top_k) {
    if (!facts.consistent() || facts.experts != experts || facts.top_k != top_k)
        fail("route: found ", facts.top_k, " of ", facts.experts, " experts in ", facts.topk_group, " of ",
             facts.groups, " groups for logits of width ", experts, " and ids of width ", top_k,
             ", expected facts that fit each other and the shapes");
}

}  // namespace detail

/// Chooses and weighs the experts of every token, all in A.
/// scores[tokens, experts] = softmax or sigmoid of logits[tokens, experts], kept for the gradient. The choice is the
/// top_k of scores + bias (bias null: of scores) among the experts of the topk_group best groups; ties go to the lower
/// index. ids[tokens, top_k] ascend; weights[tokens, top_k] = scores without bias, divided by their sum + 1e-20 if
/// `normalise`, times scaling_factor. (DeepSeek-V2 §2.1.2, DeepSeek-V3 §2.1.2.) Errors: facts or shapes that do not
/// fit. `chosen`: ids are given, and only scores and weights are made.
template <class A>
void route(host::queue& queue, const router_facts& facts, matrix<const std::type_identity_t<A>> logits,
           const std::type_identity_t<A>* bias, matrix<A> scores, matrix<std::int32_t> ids, matrix<A> weights,
           bool chosen = false) {
    detail::check_router(facts, logits.width, ids.width);
    queue.enqueue(pieces(logits.rows, detail::router_tokens), [&](integer task, int worker) {
        const integer first = task * detail::router_tokens;
        for (integer t = first; t < logits.rows && t < first + detail::router_tokens; ++t) {
            detail::router_scores(facts, logits.row(t), scores.row(t));
            if (!chosen) detail::router_choice<A>(facts, scores.row(t), bias, ids.row(t), queue.scratch(worker));
            A sum{};
            for (integer j = 0; j < facts.top_k; ++j) sum += scores(t, ids(t, j));
            const A scale = static_cast<A>(facts.scaling_factor) / (facts.normalise ? sum + A(1e-20) : A{1});
            for (integer j = 0; j < facts.top_k; ++j) weights(t, j) = scores(t, ids(t, j)) * scale;
        }
    });
}

/// dlogits[tokens, experts] from dweights[tokens, top_k] and, unless empty, dscores[tokens, experts] of a loss on the
/// scores themselves. The choice has no gradient. Overwrites dlogits, which may be dscores itself.
template <class A>
void route_backward(host::queue& queue, const router_facts& facts, matrix<A> dlogits,
                    matrix<const std::type_identity_t<A>> dweights, matrix<const std::type_identity_t<A>> scores,
                    matrix<const std::int32_t> ids, matrix<const std::type_identity_t<A>> weights,
                    matrix<const std::type_identity_t<A>> dscores = {}) {
    detail::check_router(facts, dlogits.width, ids.width);
    queue.enqueue(pieces(dlogits.rows, detail::router_tokens), [&](integer task, int) {
        const integer first = task * detail::router_tokens;
        for (integer t = first; t < dlogits.rows && t < first + detail::router_tokens; ++t) {
            A* d = dlogits.row(t);
            const A* s = scores.row(t);
            for (integer e = 0; e < facts.experts; ++e) d[e] = dscores.empty() ? A{} : dscores(t, e);
            A sum{}, along{};  // of the chosen scores; of the gradient along the weights, which normalising takes away
            for (integer j = 0; j < facts.top_k; ++j) {
                sum += s[ids(t, j)];
                along += dweights(t, j) * weights(t, j);
            }
            const A scale = static_cast<A>(facts.scaling_factor);
            for (integer j = 0; j < facts.top_k; ++j)
                d[ids(t, j)] +=
                    facts.normalise ? (scale * dweights(t, j) - along) / (sum + A(1e-20)) : scale * dweights(t, j);
            if (facts.score == router_facts::score_kind::sigmoid) {
                for (integer e = 0; e < facts.experts; ++e) d[e] *= s[e] * (A{1} - s[e]);
            } else {
                A mean{};
                for (integer e = 0; e < facts.experts; ++e) mean += d[e] * s[e];
                for (integer e = 0; e < facts.experts; ++e) d[e] = s[e] * (d[e] - mean);
            }
        }
    });
}

/// load[e] += the rows of expert e, as `group_rows` counted them.
inline void add_load(host::queue& queue, integer* load, const integer* offsets, integer experts) {
    queue.enqueue(1, [&](integer, int) {
        for (integer e = 0; e < experts; ++e) load[e] += offsets[e + 1] - offsets[e];
    });
}

/// bias[e] += gamma * sign(mean load - load[e]), once a step over the loads of the whole batch; sign(0) is 0
/// (DeepSeek-V3 §2.1.2, balancing without an auxiliary loss).
template <class A> void bias_update(host::queue& queue, A* bias, const integer* load, integer experts, double gamma) {
    queue.enqueue(1, [&](integer, int) {
        integer total = 0;
        for (integer e = 0; e < experts; ++e) total += load[e];
        for (integer e = 0; e < experts; ++e) {
            const integer here = load[e] * experts;  // exact: no mean is rounded
            bias[e] += static_cast<A>(gamma * (here < total ? 1.0 : here > total ? -1.0 : 0.0));
        }
    });
}

}  // namespace fathom::ops
