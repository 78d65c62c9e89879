// The losses that keep experts equally busy, and their gradient by the router's scores.
#pragma once

#include <algorithm>
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

/// Adds tokens to a sequence's sums over experts: how often each is counted, and its share of the scores.
template <class A>
void add_balance_sums(const router_facts& facts, matrix<const A> scores, matrix<const std::int32_t> ids, double* counts,
                      double* shares, arena scratch) {
    auto* values = scratch.take<A>(facts.top_k);
    auto* chosen = scratch.take<std::int32_t>(facts.top_k);
    for (integer t = 0; t < scores.rows; ++t) {
        double sum = 0;
        for (integer e = 0; e < facts.experts; ++e) sum += static_cast<double>(scores(t, e));
        for (integer e = 0; e < facts.experts; ++e) shares[e] += static_cast<double>(scores(t, e)) / sum;
        const std::int32_t* counted = chosen;
        if (ids.empty()) {
            best<A> top{values, chosen, facts.top_k};
            for (integer e = 0; e < facts.experts; ++e) top.offer(scores(t, e), e);
        } else {
            counted = ids.row(t);
        }
        for (integer j = 0; j < facts.top_k; ++j) counts[counted[j]] += 1;
    }
}

/// f_i of an expert counted once in a sequence of `length` tokens.
constexpr double balance_of_count(const router_facts& facts, integer length) {
    return static_cast<double>(facts.experts) / (static_cast<double>(facts.top_k) * static_cast<double>(length));
}

/// sum_i f_i P_i of a sequence, times alpha.
inline double balance_of(const router_facts& facts, integer length, const double* counts, const double* shares,
                         double alpha) {
    const double per_count = balance_of_count(facts, length);
    double loss = 0;
    for (integer e = 0; e < facts.experts; ++e)
        loss += alpha * (counts[e] * per_count) * (shares[e] / static_cast<double>(length));
    return loss;
}

/// Adds `factor` times the gradient of the loss of a sequence by the scores of these tokens of it.
template <class A>
void add_balance_gradient(const router_facts& facts, integer length, matrix<const A> scores, const double* counts,
                          double factor, matrix<A> dscores) {
    const double scaled = factor * balance_of_count(facts, length);
    for (integer t = 0; t < scores.rows; ++t) {
        double sum = 0, along = 0;
        for (integer e = 0; e < facts.experts; ++e) sum += static_cast<double>(scores(t, e));
        for (integer e = 0; e < facts.experts; ++e) along += counts[e] * static_cast<double>(scores(t, e));
        along /= sum;
        const double scale = scaled / (static_cast<double>(length) * sum);
        for (integer e = 0; e < facts.experts; ++e) dscores(t, e) += static_cast<A>(scale * (counts[e] - along));
    }
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
            const matrix<const A> own = scores.rows_at(row, length);
            arena scratch = queue.scratch(worker);
            auto* counts = scratch.take<double>(facts.experts);
            auto* shares = scratch.take<double>(facts.experts);
            for (integer e = 0; e < facts.experts; ++e) counts[e] = shares[e] = 0;
            detail::add_balance_sums<A>(facts, own, ids.empty() ? ids : ids.rows_at(row, length), counts, shares,
                                        scratch);
            losses[task] = detail::balance_of(facts, length, counts, shares, alpha);
            if (!dscores.empty())
                detail::add_balance_gradient<A>(facts, length, own, counts,
                                                factor * alpha / static_cast<double>(sequences),
                                                dscores.rows_at(row, length));
        });
        for (integer s = 0; loss != nullptr && s < some; ++s) *loss += losses[s] / static_cast<double>(sequences);
    }
}

// The same where ranks share the tokens of a sequence: sums, which are added over the ranks, then the loss of them.

/// sums[sequences, 2 * experts] = over the tokens that are here, how often each expert is counted, then its shares of
/// the scores. scores[tokens, experts] and ids, as `balance_loss` has them, are of the tokens [first, first + tokens)
/// of `sequences` runs of `length` tokens.
template <class A>
void balance_sums(host::queue& queue, const router_facts& facts, integer length, integer first,
                  matrix<const std::type_identity_t<A>> scores, matrix<const std::int32_t> ids, matrix<double> sums) {
    queue.enqueue(sums.rows, [&](integer s, int worker) {
        for (integer e = 0; e < sums.width; ++e) sums(s, e) = 0;
        const auto here = [&](integer token) { return std::clamp<integer>(token - first, 0, scores.rows); };
        const integer row = here(s * length), count = here((s + 1) * length) - row;
        detail::add_balance_sums<A>(facts, scores.rows_at(row, count), ids.empty() ? ids : ids.rows_at(row, count),
                                    sums.row(s), sums.row(s) + facts.experts, queue.scratch(worker));
    });
}

/// *loss += the sum over sequences of alpha * sum_i f_i P_i, of sequences of `length` tokens with these sums.
inline void balance_of_sums(host::queue& queue, const router_facts& facts, integer length, matrix<const double> sums,
                            double alpha, double* loss) {
    queue.enqueue(1, [&](integer, int) {
        for (integer s = 0; s < sums.rows; ++s)
            *loss += detail::balance_of(facts, length, sums.row(s), sums.row(s) + facts.experts, alpha);
    });
}

/// dscores[tokens, experts] += the gradient of `balance_of_sums`, for the tokens of `balance_sums` with the same
/// `here`, `first` and scores; `length` is of a whole sequence, `here` of what this rank's context part has of it.
template <class A>
void balance_of_sums_backward(host::queue& queue, const router_facts& facts, integer length, integer here,
                              integer first, matrix<const std::type_identity_t<A>> scores, matrix<const double> sums,
                              double alpha, matrix<A> dscores) {
    constexpr integer tokens = 64;
    queue.enqueue(pieces(scores.rows, tokens), [&](integer task, int) {
        for (integer t = task * tokens; t < scores.rows && t < (task + 1) * tokens; ++t)
            detail::add_balance_gradient<A>(facts, length, scores.rows_at(t, 1), sums.row((first + t) / here), alpha,
                                            dscores.rows_at(t, 1));
    });
}

}  // namespace fathom::ops
