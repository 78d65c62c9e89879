// One transformer layer: attention and feed-forward, each behind a norm and beside a residual; the unit that models
// repeat.
#pragma once

#include <algorithm>
#include <fathom/core/number.hpp>
#include <fathom/nn/micro_batch.hpp>
#include <fathom/nn/parameter.hpp>
#include <fathom/nn/tensor_exchange.hpp>
#include <fathom/ops/elementwise.hpp>
#include <fathom/ops/rms_norm.hpp>
#include <fathom/tensor/arena.hpp>
#include <fathom/tensor/tensor.hpp>

namespace fathom::nn {

/// Whether a layer holds numbers that gradients do not train (the bias of a router).
template <class Layer>
concept has_buffers = requires {
    typename Layer::buffers;
};

/// Whether a layer of a split block reads this rank's share of the tokens, and not all of them (experts).
template <class Layer>
concept takes_share = requires {
    requires Layer::takes_share;
};

/// mid = x + attention(norm(x)); y = mid + feed_forward(norm(mid)). The gradient of the residual stream is one matrix
/// that backward turns from that of y into that of x; contributions are added in the order feed-forward, then
/// attention.
/// Split: tensor ranks share the tokens of the residual stream and of what lies beside it (Korthikanti et al.,
/// "Reducing activation recomputation in large transformer models", 2022). The layers that they split get all tokens
/// gathered, once forward and once more for the weights' gradients, and their parts of sums are reduced to shares.
template <class T, template <class> class Attention, template <class> class FeedForward, bool Split = false>
struct block {
    using A = accumulator_t<T>;
    using attention = Attention<T>;
    using feed_forward = FeedForward<T>;
    using stream = tensor<T, axis::tokens, axis::hidden>;
    using const_stream = tensor<const T, axis::tokens, axis::hidden>;
    static constexpr bool split = Split;
    static constexpr bool buffered = has_buffers<feed_forward>;
    static_assert(!Split || !buffered || takes_share<feed_forward>,
                  "fathom: the experts of a split block read shares of tokens. fix: nn::dispatched_experts.");

    struct facts {
        integer hidden_size = 0;
        double rms_norm_eps = 1e-6;
        typename attention::facts self_attn{};
        typename feed_forward::facts mlp{};
        split_over tensor{};
    };
    struct no_buffers {};
    template <class F> struct buffers_of { using type = no_buffers; };
    template <has_buffers F> struct buffers_of<F> { using type = typename F::buffers; };
    using buffers = typename buffers_of<feed_forward>::type;

    facts of;
    recomputation again{};

    template <class E> struct parameters {
        matrix<E> attention_norm, mlp_norm;
        typename attention::template parameters<E> self_attn;
        typename feed_forward::template parameters<E> mlp;
    };
    /// What is kept of the inside of a block: all of it, or nothing when whole blocks are recomputed.
    struct inside {
        matrix<A> attention_inverse_rms, mlp_inverse_rms;
        stream attention_in, mid, mlp_in;
        typename attention::saved self_attn;
        typename feed_forward::saved mlp;
    };
    struct saved {
        const_stream x;
        inside in;
        stream y;
    };
    struct deferred {
        inside in;  // when whole blocks are recomputed and weights come later
        stream attention_in, mlp_in;
        matrix<A> dattention_norm, dmlp_norm;
        typename attention::deferred self_attn;
        typename feed_forward::deferred mlp;
    };
    struct workspace {
        inside in;
        stream attention_in, mlp_in, dnormed;
        stream whole, part;  // of all tensor ranks' tokens
        matrix<A> norm_partials;
        typename attention::workspace self_attn;
        typename feed_forward::workspace mlp;
    };

    [[nodiscard]] constexpr attention self_attn() const { return {of.self_attn, again}; }
    [[nodiscard]] constexpr feed_forward mlp() const { return {of.mlp, again}; }

    template <class P, class Visit> constexpr void each_parameter(P& p, Visit&& visit) const {
        using V = std::remove_reference_t<Visit>;
        visit(p.attention_norm, gain("input_layernorm.weight", of.hidden_size));
        self_attn().each_parameter(p.self_attn, below<V>{"self_attn.", visit});
        visit(p.mlp_norm, gain("post_attention_layernorm.weight", of.hidden_size));
        mlp().each_parameter(p.mlp, below<V>{"mlp.", visit});
    }
    template <class Visit> constexpr void each_buffer(buffers& b, Visit&& visit) const {
        if constexpr (buffered) mlp().each_buffer(b, below<std::remove_reference_t<Visit>>{"mlp.", visit});
    }

    constexpr saved keep(arena& memory, extents shape) const {
        saved s;
        if (!again.blocks) s.in = keep_inside(memory, shape);
        s.y = take_stream(memory, shape);
        return s;
    }
    constexpr deferred defer(arena& memory, extents shape, bool apart) const {
        deferred d;
        if (again.blocks && apart) d.in = keep_inside(memory, shape);
        d.dattention_norm = memory.take<A>(1, of.hidden_size);
        d.dmlp_norm = memory.take<A>(1, of.hidden_size);
        const integer inputs = memory.used();
        d.mlp_in = take_input(memory, shape, !takes_share<feed_forward>);
        if (!apart) memory.rewind(inputs);
        d.attention_in = take_input(memory, shape, true);  // not smaller
        const integer start = memory.used();
        d.mlp = mlp().defer(memory, shape, apart);
        const integer end = memory.used();
        if (!apart) memory.rewind(start);  // the feed-forward layer's weights are done before attention begins
        d.self_attn = self_attn().defer(memory, shape, apart);
        memory.rewind(std::max(end, memory.used()));
        return d;
    }
    constexpr workspace work(arena& memory, extents shape) const {
        workspace w;
        if (again.blocks) w.in = keep_inside(memory, shape);
        if (again.norms) w.attention_in = w.mlp_in = take_stream(memory, shape);
        w.dnormed = take_stream(memory, shape);
        if constexpr (Split) {
            w.whole = exchange(shape).template take_whole<T>(memory, of.hidden_size);
            w.part = exchange(shape).template take_whole<T>(memory, of.hidden_size);
        }
        w.norm_partials = memory.take<A>(pieces(stream_rows(shape), ops::rms_norm_rows), of.hidden_size);
        const integer start = memory.used();
        w.self_attn = self_attn().work(memory, shape);
        const integer end = memory.used();
        memory.rewind(start);
        w.mlp = mlp().work(memory, shape);
        memory.rewind(std::max(end, memory.used()));
        return w;
    }
    [[nodiscard]] constexpr integer scratch(extents shape) const {
        return std::max(self_attn().scratch(shape), mlp().scratch(shape));
    }
    [[nodiscard]] constexpr integer matrix_parameters() const {
        return self_attn().matrix_parameters() + mlp().matrix_parameters();
    }
    [[nodiscard]] constexpr integer products_per_pair() const { return self_attn().products_per_pair(); }

    /// s.y = the block of x.
    template <class Queue>
    void forward(Queue& queue, const micro_batch<A>& batch, const parameters<T>& p, buffers& b, const_stream x,
                 saved& s, workspace& w) const {
        s.x = x;
        run(queue, batch, p, b, x, again.blocks ? w.in : s.in, s.y, w);
        if constexpr (buffered) mlp().account(queue, batch, b, (again.blocks ? w.in : s.in).mlp);
    }

    /// g: from the gradient of y to the gradient of x. With `gradients`, and not apart, the weights' part is done on
    /// the way (and `d` may be laid out together); else it is left for backward_weight and `d` must be laid out apart.
    /// Apart, `gradients` take what further rounds of experts cannot leave.
    template <class Queue>
    void backward_input(Queue& queue, const micro_batch<A>& batch, const parameters<T>& p, buffers& b, saved& s,
                        stream g, deferred& d, workspace& w, parameters<A>* gradients = nullptr,
                        bool apart = false) const {
        const bool together = gradients != nullptr && !apart;
        inside& in = !again.blocks ? s.in : together ? w.in : d.in;
        if (again.blocks) run(queue, batch, p, b, s.x, in, s.y, w);
        const stream dmlp_in = mlp_backward(queue, batch, p, b, in, g, d, w, gradients);
        if (together) mlp().backward_weight(queue, in.mlp, d.mlp, gradients->mlp);
        ops::fill_zero(queue, d.dmlp_norm.data, of.hidden_size);
        ops::rms_norm_backward<T>(queue, g, true, d.dmlp_norm.data, dmlp_in, in.mid, in.mlp_inverse_rms.data,
                                  p.mlp_norm.data, w.norm_partials);
        if (again.norms) {
            const stream made = own(batch, d.attention_in);
            ops::rms_norm<T>(queue, made, in.attention_inverse_rms.data, s.x, p.attention_norm.data, of.rms_norm_eps);
            in.self_attn.x = made;
        }
        if constexpr (Split)
            in.self_attn.x = whole(queue, batch, again.norms ? const_stream{in.self_attn.x} : in.attention_in,
                                   d.attention_in, "input of attention again");
        const stream part = part_of(w.dnormed, w.part);
        self_attn().backward_input(queue, batch, p.self_attn, in.self_attn,
                                   whole(queue, batch, g, w.whole, "gradient of attention"), d.self_attn, w.self_attn,
                                   part);
        if (together) self_attn().backward_weight(queue, in.self_attn, d.self_attn, gradients->self_attn);
        ops::fill_zero(queue, d.dattention_norm.data, of.hidden_size);
        ops::rms_norm_backward<T>(queue, g, true, d.dattention_norm.data,
                                  summed(batch, part, "gradient of attention's input"), s.x,
                                  in.attention_inverse_rms.data, p.attention_norm.data, w.norm_partials);
        if (together) norm_weights(queue, d, *gradients);
    }

    /// The weights' part, when backward_input left it.
    template <class Queue>
    void backward_weight(Queue& queue, const saved& s, const deferred& d, parameters<A>& gradients) const {
        const inside& in = again.blocks ? d.in : s.in;
        mlp().backward_weight(queue, in.mlp, d.mlp, gradients.mlp);
        self_attn().backward_weight(queue, in.self_attn, d.self_attn, gradients.self_attn);
        norm_weights(queue, d, gradients);
    }

    /// visit(operation, name, view) for what forward kept, in the order in which it was made.
    template <class Visit> void each_saved(const saved& s, Visit&& visit) const {
        visit("input norm", "attention_in", s.in.attention_in);
        self_attn().each_saved(s.in.self_attn, visit);
        visit("o_proj and residual", "mid", s.in.mid);
        visit("post-attention norm", "mlp_in", s.in.mlp_in);
        mlp().each_saved(s.in.mlp, visit);
        visit("down_proj and residual", "y", s.y);
    }

  private:
    constexpr inside keep_inside(arena& memory, extents shape) const {
        const integer n = stream_rows(shape);
        inside in;
        in.attention_inverse_rms = memory.take<A>(1, n);
        in.mlp_inverse_rms = memory.take<A>(1, n);
        if (!again.norms) {
            in.attention_in = take_stream(memory, shape);
            in.mlp_in = take_stream(memory, shape);
        }
        in.mid = take_stream(memory, shape);
        in.self_attn = self_attn().keep(memory, shape);
        in.mlp = mlp().keep(memory, shape);
        return in;
    }
    template <class Queue>
    void run(Queue& queue, const micro_batch<A>& batch, const parameters<T>& p, buffers& b, const_stream x, inside& in,
             stream y, workspace& w) const {
        const stream attention_in = again.norms ? w.attention_in : in.attention_in;
        const stream mlp_in = again.norms ? w.mlp_in : in.mlp_in;
        ops::rms_norm<T>(queue, attention_in, in.attention_inverse_rms.data, x, p.attention_norm.data, of.rms_norm_eps);
        ops::copy(queue, in.mid, x);
        {
            const stream sum = begin_sum(queue, in.mid, w.part);
            self_attn().forward(queue, batch, p.self_attn,
                                whole(queue, batch, attention_in, w.whole, "input of attention"), in.self_attn,
                                w.self_attn, sum);
            end_sum(queue, batch, in.mid, sum, "output of attention");
        }
        ops::rms_norm<T>(queue, mlp_in, in.mlp_inverse_rms.data, in.mid, p.mlp_norm.data, of.rms_norm_eps);
        ops::copy(queue, y, in.mid);
        if constexpr (buffered) {
            mlp().forward(queue, batch, p.mlp, b, mlp_in, in.mlp, w.mlp, y);
        } else {
            const stream sum = begin_sum(queue, y, w.part);
            mlp().forward(queue, p.mlp, whole(queue, batch, mlp_in, w.whole, "input of feed-forward"), in.mlp, w.mlp,
                          sum);
            end_sum(queue, batch, y, sum, "output of feed-forward");
        }
    }
    /// The gradient of the feed-forward layer's input.
    template <class Queue>
    stream mlp_backward(Queue& queue, const micro_batch<A>& batch, const parameters<T>& p, buffers& b, inside& in,
                        stream g, deferred& d, workspace& w, parameters<A>* gradients) const {
        if (again.norms) {
            const stream made = takes_share<feed_forward> ? d.mlp_in : own(batch, d.mlp_in);
            ops::rms_norm<T>(queue, made, in.mlp_inverse_rms.data, in.mid, p.mlp_norm.data, of.rms_norm_eps);
            in.mlp.x = made;
        }
        if constexpr (takes_share<feed_forward>) {
            mlp().backward_input(queue, batch, p.mlp, b, in.mlp, g, d.mlp, w.mlp, w.dnormed,
                                 gradients != nullptr ? &gradients->mlp : nullptr);
            return w.dnormed;
        } else if constexpr (buffered) {
            mlp().backward_input(queue, batch, p.mlp, b, in.mlp, g, d.mlp, w.mlp, w.dnormed);
            return w.dnormed;
        } else {
            if constexpr (Split)
                in.mlp.x = whole(queue, batch, again.norms ? const_stream{in.mlp.x} : in.mlp_in, d.mlp_in,
                                 "input of feed-forward again");
            const stream part = part_of(w.dnormed, w.part);
            mlp().backward_input(queue, p.mlp, in.mlp, whole(queue, batch, g, w.whole, "gradient of feed-forward"),
                                 d.mlp, w.mlp, part, false);
            return summed(batch, part, "gradient of feed-forward's input");
        }
    }
    template <class Queue> void norm_weights(Queue& queue, const deferred& d, parameters<A>& gradients) const {
        ops::add(queue, gradients.mlp_norm, d.dmlp_norm);
        ops::add(queue, gradients.attention_norm, d.dattention_norm);
    }

    // Between a share of the tokens and all of them. Where nothing is split, both are one and nothing is done.

    [[nodiscard]] constexpr tensor_exchange exchange(extents shape) const { return {of.tensor, shape}; }
    [[nodiscard]] constexpr bool divided() const { return Split && of.tensor.ranks > 1; }
    /// Rows that the residual stream has room for.
    [[nodiscard]] constexpr integer stream_rows(extents shape) const {
        return Split ? exchange(shape).mine.each : shape.tokens();
    }
    constexpr stream take_stream(arena& memory, extents shape) const {
        if constexpr (Split) return {exchange(shape).template take_share<T>(memory, of.hidden_size)};
        return {memory.take<T>(shape.tokens(), of.hidden_size)};
    }
    /// Room for a layer's input that backward makes or gathers again.
    constexpr stream take_input(arena& memory, extents shape, bool gathered) const {
        if constexpr (Split)
            if (gathered && divided()) return {exchange(shape).template take_whole<T>(memory, of.hidden_size)};
        return again.norms ? take_stream(memory, shape) : stream{};
    }
    [[nodiscard]] stream own(const micro_batch<A>& batch, stream room) const {
        return divided() ? stream{exchange(batch.shape).own(matrix<T>{room})} : room;
    }
    template <class Queue>
    const_stream whole(Queue& queue, const micro_batch<A>& batch, const_stream share, stream room,
                       const char* label) const {
        if constexpr (Split) return {exchange(batch.shape).gather(queue, batch.ranks, share, matrix<T>{room}, label)};
        return share;
    }
    [[nodiscard]] stream part_of(stream share, stream room) const { return divided() ? room : share; }
    stream summed(const micro_batch<A>& batch, stream part, const char* label) const {
        if constexpr (Split) return {exchange(batch.shape).reduce_scatter(batch.ranks, matrix<T>{part}, label)};
        return part;
    }
    /// Where a layer adds what end_sum then adds to `y`.
    template <class Queue> stream begin_sum(Queue& queue, stream y, stream room) const {
        if (divided()) ops::fill_zero(queue, room.data, room.size());
        return part_of(y, room);
    }
    template <class Queue>
    void end_sum(Queue& queue, const micro_batch<A>& batch, stream y, stream part, const char* label) const {
        if (divided()) ops::add(queue, y, summed(batch, part, label));
    }
};

}  // namespace fathom::nn
