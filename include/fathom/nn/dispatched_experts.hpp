// The mixture of experts over ranks: tokens travel to the ranks that hold their experts and come back, none is dropped
// unless asked for, and memory does not depend on where they go.
#pragma once

#include <algorithm>
#include <fathom/comm/all_gather.hpp>
#include <fathom/comm/all_reduce.hpp>
#include <fathom/comm/all_to_all.hpp>
#include <fathom/comm/reduce_scatter.hpp>
#include <fathom/nn/detail/expert_rounds.hpp>
#include <fathom/nn/experts.hpp>
#include <fathom/nn/tensor_exchange.hpp>

namespace fathom::nn {

/// Sizes and routing of the whole layer, and how ranks split it.
struct dispatched_experts_facts : experts_facts {
    split_over expert{};         // ranks that hold the experts
    split_over expert_tensor{};  // ranks that split each expert
    split_over tensor{};         // ranks that share the tokens of a shape
    double expert_tokens = 2;    // rows reserved for experts, over those that an even load brings
    double capacity_factor = 0;  // rows that a rank takes of another, over those that an even load brings; 0: all
    integer most_tokens = 0;     // of the largest shape of any rank, which rows are reserved for; 0: of the one at hand
};

/// `experts` of this rank's share of the tokens, with routed experts split over `expert` x `expert_tensor` ranks. Rows
/// beyond those reserved come in further rounds, as many on all ranks: the first round stays for backward, which
/// sends what came in later ones again.
template <class T> struct dispatched_experts {
    using A = accumulator_t<T>;
    using facts = dispatched_experts_facts;
    static constexpr const char* name = "experts";
    static constexpr bool takes_share = true;
    using tokens_hidden = tensor<T, axis::tokens, axis::hidden>;
    template <class E> using parameters = typename experts<T>::template parameters<E>;
    using buffers = typename experts<T>::buffers;

    dispatched_experts_facts of;
    recomputation again{};

    struct saved {
        tensor<const T, axis::tokens, axis::hidden> x;
        tensor<A, axis::tokens, axis::experts> scores;
        matrix<std::int32_t> ids;   // [tokens, num_experts_per_tok], ascending
        matrix<A> weights;          // of ids
        matrix<integer> offsets;    // [1, n_routed_experts + 2]: the rows sent to each expert, then those dropped
        matrix<std::int32_t> rows;  // [1, tokens * k]: token of each row sent
        matrix<std::int32_t> slot;  // [tokens, k]: row sent of each choice
        matrix<double> balance;     // [sequences, 2 * n_routed_experts]: sums for the balance loss
        matrix<integer> counts;     // [ranks, n_routed_experts + 1], as detail::expert_rounds has them
        // Of one round, where experts are:
        matrix<integer> groups;       // [1, experts here + 1]: the grouped rows of each expert
        matrix<std::int32_t> places;  // [1, reserved]: where each grouped row lies among those received
        matrix<A> row_weight;         // [1, reserved], grouped
        tensor<T, axis::expert_tokens, axis::hidden> received;
        tensor<T, axis::expert_tokens, axis::gate_up> gate_up;   // grouped
        tensor<T, axis::expert_tokens, axis::intermediate> act;  // grouped
        typename feed_forward<T>::saved shared;
    };
    struct deferred {
        tensor<T, axis::expert_tokens, axis::hidden> dy;  // received
        tensor<T, axis::expert_tokens, axis::intermediate> act;
        tensor<A, axis::tokens, axis::experts> dlogits;
        typename feed_forward<T>::deferred shared;
    };
    struct workspace {
        tensor<A, axis::tokens, axis::experts> logits, dscores;
        matrix<A> dweights, sent_weight;  // sent_weight[tokens * k, 1]: of the rows sent, or their gradients
        matrix<T> sent;                   // [tokens * k, hidden]: rows sent, or what came back for them
        matrix<A> received_weight, drow_weight;
        tensor<T, axis::expert_tokens, axis::intermediate> act, dact;
        matrix<T> rows;  // [reserved, hidden]: outputs of experts, or gradients of their inputs
        matrix<std::int32_t> cycles;
        matrix<std::int32_t> kept;  // [tokens, k]: ids, of those that are not dropped
        matrix<integer> sends, receives, elements, cursors;
        typename feed_forward<T>::workspace shared;
    };

    [[nodiscard]] constexpr integer top_k() const { return of.router.top_k; }
    [[nodiscard]] constexpr bool has_shared() const { return of.n_shared_experts > 0; }
    [[nodiscard]] constexpr feed_forward<T> shared() const { return whole().shared(); }
    /// Experts that this rank holds, and the part of each one's width.
    [[nodiscard]] constexpr integer held() const { return of.expert.share(of.n_routed_experts); }
    [[nodiscard]] constexpr integer width() const { return of.expert_tensor.share(of.moe_intermediate_size); }
    /// Rows that so many tokens of one rank may send to another.
    [[nodiscard]] constexpr integer capacity(integer tokens) const {
        const integer all = tokens * std::min(top_k(), held());
        if (of.capacity_factor == 0) return all;
        return std::min(all, rounded_up(of.capacity_factor * static_cast<double>(tokens * top_k()) /
                                        static_cast<double>(of.expert.ranks)));
    }
    /// Rows that one rank's tokens are received in, of those that split an expert: no more than can come.
    [[nodiscard]] constexpr integer reserve(extents shape) const {
        const integer tokens = share_of{std::max(shape.most_tokens(), of.most_tokens), of.tensor.ranks, 0}.each;
        const integer rows = rounded_up(of.expert_tokens * static_cast<double>(tokens * top_k()));
        return std::max<integer>(1, std::min(rows, of.expert.ranks * capacity(tokens)));
    }

    template <class P, class Visit> constexpr void each_parameter(P& p, Visit&& visit) const {
        const integer e = held(), h = of.hidden_size, i = width();
        const auto of_stack = [&](const char* part_name, integer rows, integer first, integer step) {
            part stack{.name = part_name, .rows = rows, .first = first, .count = e, .step = step};
            if (of.expert.ranks > 1) stack.number = of.expert.rank * e, stack.of_count = of.n_routed_experts;
            return stack;
        };
        const auto upward = [&](const char* part_name, integer first) {
            return rows_over(of.expert_tensor, of_stack(part_name, of.moe_intermediate_size, first, 2 * i));
        };
        visit(p.router, weight("gate.weight", of.n_routed_experts, h));
        visit(p.gate_up,
              storage{.rows = e * 2 * i,
                      .width = h,
                      .parts = {{upward("experts.*.gate_proj.weight", 0), upward("experts.*.up_proj.weight", i)}},
                      .of_experts = true});
        visit(p.down,
              columns_over(of.expert_tensor, storage{.rows = e * h,
                                                     .width = of.moe_intermediate_size,
                                                     .parts = {{of_stack("experts.*.down_proj.weight", h, 0, h)}},
                                                     .of_experts = true}));
        if (has_shared())
            shared().each_parameter(p.shared, below<std::remove_reference_t<Visit>>{"shared_experts.", visit});
    }
    template <class Visit> constexpr void each_buffer(buffers& b, Visit&& visit) const {
        whole().each_buffer(b, visit);
    }

    constexpr saved keep(arena& memory, extents shape) const {
        const tensor_exchange tokens{of.tensor, shape};
        const integer e = of.n_routed_experts, r = of.expert_tensor.ranks * reserve(shape);
        saved s;
        s.scores = tokens.take_share<A>(memory, e);
        s.ids = tokens.take_share<std::int32_t>(memory, top_k());
        s.weights = tokens.take_share<A>(memory, top_k());
        s.offsets = memory.take<integer>(1, e + 2);
        s.rows = memory.take<std::int32_t>(1, tokens.mine.each * top_k());
        s.slot = tokens.take_share<std::int32_t>(memory, top_k());
        s.balance = memory.take<double>(shape.sequences, 2 * e);
        s.counts = memory.take<integer>(of.expert.ranks * of.expert_tensor.ranks, e + 1);
        s.groups = memory.take<integer>(1, held() + 1);
        s.places = memory.take<std::int32_t>(1, r);
        s.row_weight = memory.take<A>(1, r);
        s.received = memory.take<T>(r, of.hidden_size);
        s.gate_up = memory.take<T>(r, 2 * width());
        if (!again.swiglu) s.act = memory.take<T>(r, width());
        if (has_shared()) s.shared = of_share(memory, shape, [&](extents own) { return shared().keep(memory, own); });
        return s;
    }
    constexpr deferred defer(arena& memory, extents shape, bool apart) const {
        const integer r = of.expert_tensor.ranks * reserve(shape);
        deferred d;
        d.dy = memory.take<T>(r, of.hidden_size);
        if (again.swiglu) d.act = memory.take<T>(r, width());
        d.dlogits = tensor_exchange{of.tensor, shape}.take_share<A>(memory, of.n_routed_experts);
        if (has_shared())
            d.shared = of_share(memory, shape, [&](extents own) { return shared().defer(memory, own, apart); });
        return d;
    }
    constexpr workspace work(arena& memory, extents shape) const {
        const tensor_exchange tokens{of.tensor, shape};
        const integer e = of.n_routed_experts, ranks = of.expert.ranks, lanes = of.expert_tensor.ranks;
        const integer r = lanes * reserve(shape);
        workspace w;
        w.logits = tokens.take_share<A>(memory, e);
        w.dscores = tokens.take_share<A>(memory, e);
        w.dweights = tokens.take_share<A>(memory, top_k());
        w.sent_weight = memory.take<A>(tokens.mine.each * top_k(), 1);
        w.sent = memory.take<T>(tokens.mine.each * top_k(), of.hidden_size);
        w.received_weight = memory.take<A>(r, 1);
        w.drow_weight = memory.take<A>(1, r);
        if (again.swiglu) w.act = memory.take<T>(r, width());
        w.dact = memory.take<T>(r, width());
        w.rows = memory.take<T>(r, of.hidden_size);
        w.cycles = memory.take<std::int32_t>(1, r);
        if (of.capacity_factor > 0) w.kept = tokens.take_share<std::int32_t>(memory, top_k());
        w.sends = memory.take<integer>(2, ranks);
        w.receives = memory.take<integer>(2, ranks);
        w.elements = memory.take<integer>(4, ranks);
        w.cursors = memory.take<integer>(lanes, ranks);
        if (has_shared()) w.shared = of_share(memory, shape, [&](extents own) { return shared().work(memory, own); });
        return w;
    }
    [[nodiscard]] constexpr integer scratch(extents shape) const { return whole().scratch(shape); }
    [[nodiscard]] constexpr integer matrix_parameters() const { return whole().matrix_parameters(); }

    template <class Queue>
    void forward(Queue& queue, const micro_batch<A>& batch, const parameters<T>& p, buffers& b,
                 tensor<const T, axis::tokens, axis::hidden> x, saved& s, workspace& w, tokens_hidden y) const {
        s.x = x;
        project(queue, w.logits, x, p.router);
        choose_experts<A>(queue, batch, of.router, b.routes, w.logits, b.bias.data, s.scores, s.ids, s.weights);
        matrix<const std::int32_t> kept = s.ids;
        if (of.capacity_factor > 0) {
            ops::drop_rows<A>(queue, w.kept, s.ids, s.scores, of.n_routed_experts, of.expert.ranks, capacity(x.rows),
                              s.rows.data);
            kept = w.kept;
        }
        ops::group_rows(queue, kept, of.n_routed_experts + 1, s.offsets.data, s.rows.data, s.slot.data);
        if (batch.balance_weight != 0) sum_balance(queue, batch, s);
        count_rows(batch, s);
        ops::scatter_scalars<A>(queue, w.sent_weight.data, s.weights.data, s.slot.data, s.slot.size());
        for (integer round = rounds(s).count(); round-- > 0;) {  // so that what stays is of the first
            const auto at = lay(s, w, round);
            dispatch(queue, batch, at, s, w);
            up(queue, p, s);
            const auto act = grouped(s, again.swiglu ? w.act : s.act);
            ops::swiglu<T>(queue, act, s.gate_up, s.row_weight.data);
            ops::grouped_product(queue, w.rows, act, p.down, of.hidden_size, s.groups.data, held());
            ops::permute_rows(queue, arrived(at, w.rows), s.places.data, w.cycles.data);
            from_experts(queue, batch, at, w, w.rows, w.sent, "outputs of experts");
        }
        ops::fill_zero(queue, dropped(s, w.sent).data, dropped(s, w.sent).size());
        ops::combine_rows<T>(queue, y, w.sent, s.slot.data, top_k(), true);
        if (has_shared()) shared().forward(queue, p.shared, x, s.shared, w.shared, y);
    }

    /// What a forward adds to the step besides y, as `experts` has it: the load of each expert by this rank's tokens,
    /// and the balance loss, once for all ranks that share sequences.
    template <class Queue> void account(Queue& queue, const micro_batch<A>& batch, buffers& b, const saved& s) const {
        ops::add_load(queue, b.load.data, s.offsets.data, of.n_routed_experts);
        if (batch.balance_weight != 0 &&
            (batch.ranks == nullptr || (batch.ranks->at.tp == 0 && batch.ranks->at.cp == 0)))
            ops::balance_of_sums(queue, of.router, length(batch), s.balance, batch.balance_weight, batch.balance_loss);
    }

    /// dx = the gradient of the input; afterwards `s` and `d` hold what weights need of the last round. The weights'
    /// part of all rounds before it is added to `gradients`. Errors: several rounds without `gradients`.
    template <class Queue>
    void backward_input(Queue& queue, const micro_batch<A>& batch, const parameters<T>& p, const buffers&, saved& s,
                        tensor<const T, axis::tokens, axis::hidden> dy, deferred& d, workspace& w, tokens_hidden dx,
                        parameters<A>* gradients) const {
        const integer h = of.hidden_size, i = width(), count = rounds(s).count();
        if (count > 1 && gradients == nullptr)
            fail("experts: found ", count, " rounds of tokens and no place for gradients of weights, expected one; ",
                 "raise expert_tokens<", of.expert_tokens, ">");
        ops::scatter_scalars<A>(queue, w.sent_weight.data, s.weights.data, s.slot.data, s.slot.size());
        for (integer round = 0; round < count; ++round) {
            if (round > 0) expert_weights(queue, s, d, *gradients);  // whose place the next round takes
            const auto at = lay(s, w, round);
            if (round > 0) {
                dispatch(queue, batch, at, s, w);
                up(queue, p, s);
            }
            send(queue, at, s, dy, w.sent);
            to_experts(queue, batch, at, w, w.sent, matrix<T>{d.dy}, "gradients of experts' outputs");
            const auto gate_up = grouped(s, s.gate_up);
            if (!again.swiglu) d.act = s.act;
            if (again.swiglu || round > 0) ops::swiglu<T>(queue, grouped(s, d.act), gate_up, s.row_weight.data);
            const auto dact = grouped(s, w.dact);
            ops::grouped_product_input(queue, dact, d.dy, p.down, h, s.groups.data, held(), false, s.places.data);
            ops::swiglu_backward<T>(queue, gate_up, dact, gate_up, s.row_weight.data, w.drow_weight.data);
            ops::grouped_product_input(queue, w.rows, gate_up, p.gate_up, 2 * i, s.groups.data, held());
            ops::permute_rows(queue, arrived(at, w.rows), s.places.data, w.cycles.data);
            from_experts(queue, batch, at, w, w.rows, w.sent, "gradients of experts' inputs");
            ops::scatter_scalars<A>(queue, w.received_weight.data, w.drow_weight.data, s.places.data, dact.rows);
            from_experts(queue, batch, at, w, w.received_weight, w.sent_weight, "gradients of routing weights");
        }
        ops::fill_zero(queue, dropped(s, w.sent).data, dropped(s, w.sent).size());
        ops::fill_zero(queue, dropped(s, w.sent_weight).data, dropped(s, w.sent_weight).size());
        ops::combine_rows<T>(queue, dx, w.sent, s.slot.data, top_k(), false);

        ops::gather_scalars<A>(queue, w.dweights.data, w.sent_weight.data, s.slot.data, s.slot.size());
        matrix<const A> extra;
        if (batch.balance_weight != 0) {
            ops::fill_zero(queue, w.dscores.data, w.dscores.size());
            ops::balance_of_sums_backward<A>(queue, of.router, length(batch), batch.shape.length,
                                             batch.stream_tokens(batch.shape).first, s.scores, s.balance,
                                             batch.balance_weight, w.dscores);
            extra = w.dscores;
        }
        ops::route_backward<A>(queue, of.router, d.dlogits, w.dweights, s.scores, s.ids, s.weights, extra);
        project_input(queue, dx, d.dlogits, p.router, true);
        if (!has_shared()) return;
        s.shared.x = s.x;  // which may have been recomputed elsewhere
        shared().backward_input(queue, p.shared, s.shared, dy, d.shared, w.shared, dx, true);
    }

    template <class Queue>
    void backward_weight(Queue& queue, const saved& s, const deferred& d, parameters<A>& gradients) const {
        project_weight(queue, gradients.router, d.dlogits, s.x);
        expert_weights(queue, s, d, gradients);
        if (has_shared()) shared().backward_weight(queue, s.shared, d.shared, gradients.shared);
    }

    /// visit(operation, name, view) for what forward kept, in the order in which it was made; rows of experts come with
    /// their grouped_rows, in which experts are numbered as they are held, and tokens as they arrived.
    template <class Visit> void each_saved(const saved& s, Visit&& visit) const {
        const grouped_rows groups{s.places.data, s.groups.data};
        visit("router", "scores", s.scores);
        visit("router", "weights", s.weights);
        visit("gate_proj and up_proj of experts", "gate_up", grouped(s, s.gate_up), groups);
        visit("weighted swiglu of experts", "act", grouped(s, s.act), groups);
        if (has_shared()) {
            visit("gate_proj and up_proj of shared experts", "gate_up", s.shared.gate_up);
            visit("swiglu of shared experts", "act", s.shared.act);
        }
    }

  private:
    static constexpr integer rounded_up(double n) {
        const auto below = static_cast<integer>(n);
        return static_cast<double>(below) < n ? below + 1 : below;
    }
    [[nodiscard]] constexpr experts<T> whole() const { return {of, again}; }
    /// What is carved for this rank's share of the tokens, in the bytes of the largest share.
    template <class Carve> constexpr auto of_share(arena& memory, extents shape, Carve&& carve) const {
        const share_of mine = tensor_exchange{of.tensor, shape}.mine;
        const integer start = memory.used();
        carve(extents{1, mine.each});
        const integer end = memory.used();
        memory.rewind(start);
        auto own = carve(extents{1, mine.count});
        memory.rewind(end);
        return own;
    }

    // Sums over the ranks that share sequences.

    [[nodiscard]] static integer length(const micro_batch<A>& batch) {
        return batch.context.ranks > 1 ? batch.context.length() : batch.shape.length;
    }
    template <class Queue> void sum_balance(Queue& queue, const micro_batch<A>& batch, saved& s) const {
        // V3 counts what the scores alone would choose, V2 and DeepSeekMoE what was chosen.
        const bool by_choice = of.router.score == ops::router_facts::score_kind::softmax;
        ops::balance_sums<A>(queue, of.router, batch.shape.length, batch.stream_tokens(batch.shape).first, s.scores,
                             by_choice ? matrix<const std::int32_t>{s.ids} : matrix<const std::int32_t>{}, s.balance);
        if (batch.ranks == nullptr) return;
        for (const comm::link* over : {&batch.ranks->tensor, &batch.ranks->context})
            if (over->size() > 1)
                over->run(comm::all_reduce(s.balance.data, s.balance.size()).from("sums for the balance loss"));
    }

    // Rounds.

    [[nodiscard]] const comm::mesh_links& links(const micro_batch<A>& batch) const {
        if (batch.ranks == nullptr || batch.ranks->expert.size() != of.expert.ranks ||
            batch.ranks->expert_tensor.size() != of.expert_tensor.ranks)
            fail("experts: found a batch for ", batch.ranks == nullptr ? 1 : batch.ranks->expert.size(), " x ",
                 batch.ranks == nullptr ? 1 : batch.ranks->expert_tensor.size(), " ranks, expected the ",
                 of.expert.ranks, " x ", of.expert_tensor.ranks, " that hold and split the experts");
        return *batch.ranks;
    }
    [[nodiscard]] detail::expert_rounds rounds(const saved& s) const {
        return {s.counts, of.expert.ranks, of.expert_tensor.ranks};
    }
    /// All ranks' counts of rows on all ranks.
    void count_rows(const micro_batch<A>& batch, saved& s) const {
        const integer e = of.n_routed_experts, lane = of.expert_tensor.rank * of.expert.ranks;
        integer* mine = s.counts.row(lane + of.expert.rank);
        for (integer i = 0; i < e; ++i) mine[i] = s.offsets.data[i + 1] - s.offsets.data[i];
        mine[e] = s.received.rows / of.expert_tensor.ranks;
        if (of.expert.ranks > 1)
            links(batch).expert.run(comm::all_gather(mine, s.counts.row(lane), e + 1).from("counts for experts"));
        if (of.expert_tensor.ranks > 1)
            links(batch).expert_tensor.run(
                comm::all_gather(s.counts.row(lane), s.counts.data, of.expert.ranks * (e + 1))
                    .from("counts for experts"));
    }
    [[nodiscard]] detail::expert_round lay(saved& s, workspace& w, integer round) const {
        detail::expert_round at{w.sends, w.receives, s.groups.data, s.places.data, w.cursors.data};
        at.lay(rounds(s), round, of.expert_tensor.rank, of.expert.rank, s.offsets.data);
        return at;
    }
    /// The grouped rows of the round that `s` is of.
    template <class M> [[nodiscard]] M grouped(const saved& s, M rows) const {
        return {rows.rows_at(0, rows.data == nullptr ? 0 : s.groups.data[held()])};
    }
    /// Rows that are sent to nobody.
    template <class E> [[nodiscard]] matrix<E> dropped(const saved& s, matrix<E> sent) const {
        const integer first = s.offsets.data[of.n_routed_experts];
        return sent.rows_at(first, s.slot.size() - first);
    }
    /// What arrives in a round, lane after lane.
    template <class E> [[nodiscard]] matrix<E> arrived(const detail::expert_round& at, matrix<E> rows) const {
        return rows.rows_at(0, of.expert_tensor.ranks * at.lane_rows);
    }
    /// The rows of a round among those sent, from their tokens.
    template <class Queue>
    void send(Queue& queue, const detail::expert_round& at, const saved& s, matrix<const T> of_tokens,
              matrix<T> sent) const {
        for (integer holder = 0; holder < of.expert.ranks; ++holder) {
            const integer first = at.sends(1, holder);
            ops::gather_rows(queue, sent.rows_at(first, at.sends(0, holder)), of_tokens, s.rows.data + first);
        }
    }
    /// Inputs of a round and their weights, to where their experts are.
    template <class Queue>
    void dispatch(Queue& queue, const micro_batch<A>& batch, const detail::expert_round& at, saved& s,
                  workspace& w) const {
        send(queue, at, s, s.x, w.sent);
        to_experts(queue, batch, at, w, w.sent, matrix<T>{s.received}, "tokens to experts");
        to_experts(queue, batch, at, w, w.sent_weight, w.received_weight, "routing weights");
        ops::gather_scalars<A>(queue, s.row_weight.data, w.received_weight.data, s.places.data, s.groups.data[held()]);
    }
    template <class Queue> void up(Queue& queue, const parameters<T>& p, saved& s) const {
        ops::grouped_product(queue, s.gate_up, s.received, p.gate_up, 2 * width(), s.groups.data, held(),
                             s.places.data);
    }
    template <class Queue>
    void expert_weights(Queue& queue, const saved& s, const deferred& d, parameters<A>& gradients) const {
        ops::grouped_product_weight(queue, gradients.gate_up, s.gate_up, s.received, 2 * width(), s.groups.data, held(),
                                    s.places.data);
        ops::grouped_product_weight(queue, gradients.down, d.dy, d.act, of.hidden_size, s.groups.data, held(), nullptr,
                                    s.places.data);
    }

    // Rows between ranks; a rank that splits experts with others takes part in all of their rows.

    template <class Queue, class E>
    void to_experts(Queue& queue, const micro_batch<A>& batch, const detail::expert_round& at, workspace& w,
                    matrix<E> sent, matrix<E> received, const char* label) const {
        const matrix<E> mine = received.rows_at(of.expert_tensor.rank * at.lane_rows, at.lane_rows);
        exchange(queue, batch, w, sent, at.sends, mine, at.receives, label);
        if (of.expert_tensor.ranks > 1)
            links(batch).expert_tensor.run(
                comm::all_gather(mine.data, received.data, at.lane_rows * mine.width).from(label));
    }
    template <class Queue, class E>
    void from_experts(Queue& queue, const micro_batch<A>& batch, const detail::expert_round& at, workspace& w,
                      matrix<E> made, matrix<E> returned, const char* label) const {
        const matrix<E> mine = made.rows_at(of.expert_tensor.rank * at.lane_rows, at.lane_rows);
        if (of.expert_tensor.ranks > 1)
            links(batch).expert_tensor.run(
                comm::reduce_scatter(made.data, mine.data, at.lane_rows * mine.width).from(label));
        exchange(queue, batch, w, mine, at.receives, returned, at.sends, label);
    }
    /// from_rows, to_rows[2, ranks]: how many rows, and where they begin.
    template <class Queue, class E>
    void exchange(Queue& queue, const micro_batch<A>& batch, workspace& w, matrix<E> from, matrix<integer> from_rows,
                  matrix<E> to, matrix<integer> to_rows, const char* label) const {
        const integer ranks = of.expert.ranks, wide = from.width;
        if (ranks == 1)
            return ops::copy(queue, to.rows_at(to_rows(1, 0), to_rows(0, 0)),
                             from.rows_at(from_rows(1, 0), from_rows(0, 0)));
        for (integer kind = 0; kind < 2; ++kind)
            for (integer r = 0; r < ranks; ++r) {
                w.elements(kind, r) = wide * from_rows(kind, r);
                w.elements(2 + kind, r) = wide * to_rows(kind, r);
            }
        const auto list = [&](integer row) {
            return std::span<const integer>{w.elements.row(row), static_cast<std::size_t>(ranks)};
        };
        links(batch).expert.run(comm::all_to_all(from.data, list(0), list(1), to.data, list(2), list(3)).from(label));
    }
};

}  // namespace fathom::nn
