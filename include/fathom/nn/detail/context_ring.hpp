// Keys and values that travel round the context ranks, and their gradients behind them.
#pragma once

#include <algorithm>
#include <array>
#include <fathom/comm/exchange.hpp>
#include <fathom/core/number.hpp>
#include <fathom/nn/detail/context_places.hpp>
#include <fathom/ops/elementwise.hpp>
#include <fathom/tensor/arena.hpp>
#include <type_traits>

namespace fathom::nn::detail {

/// Attention of a rank's own queries to all ranks' keys, one rank's at a time. `Operands` makes attention's operands of
/// queries and of rows that hold a token's keys and values: operands<const T>(q, rows).
template <class T> struct context_ring {
    using A = accumulator_t<T>;

    std::array<matrix<T>, 2> keys{};       // keys[most tokens, width]: those at work and those that arrive
    std::array<matrix<A>, 2> gradients{};  // likewise
    matrix<A> out, dq;                     // sums over all keys, where they are not of T

    static constexpr context_ring work(arena& memory, extents shape, integer values, integer queries, integer width) {
        context_ring w;
        for (auto& some : w.keys) some = memory.take<T>(shape.most_tokens(), width);
        for (auto& some : w.gradients) some = memory.take<A>(shape.most_tokens(), width);
        if constexpr (!std::is_same_v<T, A>) {
            w.out = memory.take<A>(shape.tokens(), std::max(values, queries));
            w.dq = w.out.columns_at(0, queries);
            w.out = w.out.columns_at(0, values);
        }
        return w;
    }
    /// This rank's rows, to be filled before either way.
    [[nodiscard]] matrix<T> own(const context_places& places) const {
        return keys[0].rows_at(0, places.tokens(places.share.rank));
    }

    template <class Queue, class Operands>
    void forward(Queue& queue, const ops::attention_facts& facts, const context_places& places,
                 const Operands& operands, matrix<const T> q, const std::int32_t* starts, matrix<T> result,
                 matrix<A> logsumexp) const {
        const matrix<A> sum = summed(out, result);
        const auto queries = places.own();
        for (integer step = 0; step < places.share.ranks; ++step) {
            const round now{places, step};
            std::array<comm::message, 2> messages{};
            comm::pending arriving;
            if (!now.is_last)
                arriving = places.ranks.start(now.pass_on(keys, messages, "keys and values round a ring"));
            const auto runs = places.of(now.owner, 0);
            ops::attention_forward<T>(queue, facts, places.sequences, queries, runs,
                                      operands.template operator()<const T>(q, now.at_work(keys)), starts, sum,
                                      logsumexp, step > 0);
            arriving.wait();
        }
        if constexpr (!std::is_same_v<T, A>) ops::copy(queue, result, sum);
    }

    /// Gives the gradients of this rank's own rows.
    template <class Queue, class Operands>
    matrix<const A> backward(Queue& queue, const ops::attention_facts& facts, const context_places& places,
                             const Operands& operands, matrix<const T> q, const std::int32_t* starts,
                             matrix<const T> result, matrix<const A> logsumexp, matrix<const T> dresult,
                             matrix<T> dqueries, matrix<A> shared_parts) const {
        const matrix<A> sum = summed(dq, dqueries);
        const auto queries = places.own();
        for (integer step = 0; step < places.share.ranks; ++step) {
            const round now{places, step};
            std::array<comm::message, 2> messages{};
            comm::pending arriving;
            if (!now.is_last)
                arriving = places.ranks.start(now.pass_on(keys, messages, "keys and values round a ring"));
            const auto runs = places.of(now.owner, 0);
            ops::attention_backward<T>(queue, facts, places.sequences, queries, runs,
                                       operands.template operator()<const T>(q, now.at_work(keys)), starts, result,
                                       logsumexp, dresult, operands.template operator()<A>(sum, now.at_work(gradients)),
                                       shared_parts, step > 0);
            arriving.wait();
            // The last of these bring every rank's gradients home.
            places.ranks.run(now.pass_on(gradients, messages, "gradients of keys and values round a ring"));
        }
        if constexpr (!std::is_same_v<T, A>) ops::copy(queue, dqueries, sum);
        return round{places, places.share.ranks}.at_work(gradients);
    }

  private:
    /// One of as many rounds as there are ranks: whose rows are here, and how they go on.
    struct round {
        const context_places& places;
        integer step, next, previous, owner, coming;
        bool is_last;

        round(const context_places& of, integer number)
            : places(of),
              step(number),
              next((of.share.rank + 1) % of.share.ranks),
              previous((of.share.rank + of.share.ranks - 1) % of.share.ranks),
              owner((of.share.rank + 2 * of.share.ranks - number) % of.share.ranks),
              coming((owner + of.share.ranks - 1) % of.share.ranks),
              is_last(number + 1 == of.share.ranks) {}

        template <class N> [[nodiscard]] matrix<N> at_work(const std::array<matrix<N>, 2>& both) const {
            return both[static_cast<std::size_t>(step % 2)].rows_at(0, places.tokens(owner));
        }
        /// The rows at work go to the next rank, those of the one before arrive. Ranks without tokens send nothing.
        template <class N>
        comm::request pass_on(const std::array<matrix<N>, 2>& both, std::array<comm::message, 2>& messages,
                              const char* label) const {
            const matrix<N> here = at_work(both);
            const matrix<N> there = both[static_cast<std::size_t>((step + 1) % 2)].rows_at(0, places.tokens(coming));
            std::size_t count = 0;
            if (here.rows > 0) messages[count++] = comm::send_to(next, here.data, here.size());
            if (there.rows > 0) messages[count++] = comm::receive_from(previous, there.data, there.size());
            return comm::exchange({messages.data(), count}).from(label);
        }
    };
    /// Where sums over all keys are kept: in their result, if that has their format.
    static matrix<A> summed(matrix<A> apart, matrix<T> result) {
        if constexpr (std::is_same_v<T, A>)
            return result;
        else
            return apart;
    }
};

}  // namespace fathom::nn::detail
