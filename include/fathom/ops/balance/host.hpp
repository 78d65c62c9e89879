// The losses that keep experts equally busy, and their gradient by the router's scores.
#pragma once

#include <cstdint>
#include <fathom/core/error.hpp>
#include <fathom/device/host/queue.hpp>
#include <fathom/ops/router/best.hpp>
#include <fathom/ops/router/facts.hpp>
#include <type_traits>

namespace fathom::ops {

/// The scratch of a worker that `balance_loss` asks for.
template <class A> constexpr integer balance_scratch(const router_facts& facts) {
    arena pieces;
    pieces.take<double>(facts.experts);
    pieces.take<double>(facts.experts);
    pieces.take<A>(facts.top_k);
    pieces.take<std::int32_t>(facts.top_k);
    return pieces.used();
}

namespace detail {

/// alpha * sum_i f_i P_i of one sequence; adds `factor` times its gradient to dscores.
template <class A>
double balance_of(const router_facts& facts, matrix<const A> scores, matrix<const std::int32_t> ids, double alpha,
                  double factor, matrix<A> dscores, arena scratch) {
    const integer experts = facts.experts, length = scores.rows;
    auto* counts = scratch.take<double>(experts);
    auto* shares = scratch.take<double>(experts);
    for (integer e = 0; e < experts; ++e) counts[e] = shares[e] = 0;
    auto* values = scratch.take<A>(facts.top_k);
    auto* chosen = scratch.take<std::int32_t>(facts.top_k);
    const auto total = [&](integer t) {
        double sum = 0;
        for (integer e = 0; e < experts; ++e) sum += static_cast<double>(scores(t, e));
        return sum;
    };
    for (integer t = 0; t < length; ++t) {
        const double sum = total(t);
        for (integer e = 0; e < experts; ++e) shares[e] += static_cast<double>(scores(t, e)) / sum;
        const std::int32_t* counted = chosen;
        if (ids.empty()) {
            best<A> top{values, chosen, facts.top_k};
            for (integer e = 0; e < experts; ++e) top.offer(scores(t, e), e);
        } else {
            counted = ids.row(t);
        }
        for (integer j = 0; j < facts.top_k; ++j) counts[counted[j]] += 1;
    }
    const double T = static_cast<double>(length),
                 per_count = static_cast<double>(experts) / (static_cast<double>(facts.top_k) * T);
    double loss = 0;
    for (integer e = 0; e < experts; ++e) loss += alpha * (counts[e] * per_count) * (shares[e] / T);
    if (dscores.empty()) return loss;
    for (integer t = 0; t < length; ++t) {
        const double sum = total(t), scale = factor * alpha * per_count / (T * sum);
        double along = 0;
        for (integer e = 0; e < experts; ++e) along += counts[e] * static_cast<double>(scores(t, e));
        along /= sum;
        for (integer e = 0; e < experts; ++e) dscores(t, e) += static_cast<A>(scale * (counts[e] - along));
    }
    return loss;
}

}  // namespace detail

/// *loss += the mean over `sequences` of alpha * sum_i f_i P_i, and dscores += factor times its gradient, unless
/// dscores is empty. scores[sequences * length, experts] are those that `route` kept; P_i is the mean over a sequence
/// of s_i / sum_j s_j, and f_i = experts / (top_k * length) * how often i is counted, a constant for the gradient.
/// Without `ids`, a token counts the top_k of its scores, without bias and groups: the sequence-wise loss of
/// DeepSeek-V3 (§2.1.2). With ids[sequences * length, top_k], it counts the experts chosen: the expert-level loss of
/// DeepSeekMoE and V2, over the batch as one sequence or a sequence at a time. Errors: shapes that do not fit.
template <class A>
void balance_loss(host::queue& queue, const router_facts& facts, integer sequences, integer length,
                  matrix<const std::type_identity_t<A>> scores, double alpha, double* loss, matrix<A> dscores,
                  double factor = 1, matrix<const std::int32_t> ids = {}) {
    if (scores.rows != sequences * length || scores.width != facts.experts ||
        (!ids.empty() && (ids.rows != scores.rows || ids.width != facts.top_k)))
        fail("balance_loss: found scores ", scores.rows, " x ", scores.width, " and ids ", ids.rows, " x ", ids.width,
             ", expected ", sequences, " sequences of ", length, " tokens over ", facts.experts, " experts");
    constexpr integer at_once = 64;  // losses are added in the order of sequences, whoever computed them
    double losses[at_once];
    for (integer first = 0; length > 0 && first < sequences; first += at_once) {
        const integer some = sequences - first < at_once ? sequences - first : at_once;
        queue.enqueue(some, [&](integer task, int worker) {
            const integer row = (first + task) * length;
            losses[task] =
                detail::balance_of<A>(facts, scores.rows_at(row, length), ids.empty() ? ids : ids.rows_at(row, length),
                                      alpha, factor / static_cast<double>(sequences),
                                      dscores.empty() ? dscores : dscores.rows_at(row, length), queue.scratch(worker));
        });
        for (integer s = 0; loss != nullptr && s < some; ++s) *loss += losses[s] / static_cast<double>(sequences);
    }
}

}  // namespace fathom::ops
