// One transformer layer: attention and feed-forward, each behind a norm and beside a residual; the unit that models
// repeat.
#pragma once

#include <algorithm>
#include <fathom/core/number.hpp>
#include <fathom/nn/micro_batch.hpp>
#include <fathom/nn/parameter.hpp>
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

/// mid = x + attention(norm(x)); y = mid + feed_forward(norm(mid)). The gradient of the residual stream is one matrix
/// that backward turns from that of y into that of x; contributions are added in the order feed-forward, then
/// attention.
template <class T, template <class> class Attention, template <class> class FeedForward> struct block {
    using A = accumulator_t<T>;
    using attention = Attention<T>;
    using feed_forward = FeedForward<T>;
    using stream = tensor<T, axis::tokens, axis::hidden>;
    static constexpr bool buffered = has_buffers<feed_forward>;

    struct facts {
        integer hidden_size = 0;
        double rms_norm_eps = 1e-6;
        typename attention::facts self_attn{};
        typename feed_forward::facts mlp{};
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
        tensor<const T, axis::tokens, axis::hidden> x;
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
        s.y = memory.take<T>(shape.tokens(), of.hidden_size);
        return s;
    }
    constexpr deferred defer(arena& memory, extents shape, bool apart) const {
        deferred d;
        if (again.blocks && apart) d.in = keep_inside(memory, shape);
        d.dattention_norm = memory.take<A>(1, of.hidden_size);
        d.dmlp_norm = memory.take<A>(1, of.hidden_size);
        const bool both = again.norms && apart;
        if (again.norms) d.attention_in = memory.take<T>(shape.tokens(), of.hidden_size);
        d.mlp_in = both ? stream{memory.take<T>(shape.tokens(), of.hidden_size)} : d.attention_in;
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
        if (again.norms) w.attention_in = w.mlp_in = memory.take<T>(shape.tokens(), of.hidden_size);
        w.dnormed = memory.take<T>(shape.tokens(), of.hidden_size);
        w.norm_partials = memory.take<A>(pieces(shape.tokens(), ops::rms_norm_rows), of.hidden_size);
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
    void forward(Queue& queue, const micro_batch<A>& batch, const parameters<T>& p, buffers& b,
                 tensor<const T, axis::tokens, axis::hidden> x, saved& s, workspace& w) const {
        s.x = x;
        run(queue, batch, p, b, x, again.blocks ? w.in : s.in, s.y, w);
        if constexpr (buffered) mlp().account(queue, batch, b, (again.blocks ? w.in : s.in).mlp);
    }

    /// g: from the gradient of y to the gradient of x. With `gradients` the weights' part is done on the way (and `d`
    /// may be laid out together); without, it is left for backward_weight and `d` must be laid out apart.
    template <class Queue>
    void backward_input(Queue& queue, const micro_batch<A>& batch, const parameters<T>& p, buffers& b, saved& s,
                        stream g, deferred& d, workspace& w, parameters<A>* gradients = nullptr) const {
        inside& in = !again.blocks ? s.in : gradients != nullptr ? w.in : d.in;
        if (again.blocks) run(queue, batch, p, b, s.x, in, s.y, w);
        if (again.norms) {
            ops::rms_norm<T>(queue, d.mlp_in, in.mlp_inverse_rms.data, in.mid, p.mlp_norm.data, of.rms_norm_eps);
            in.mlp.x = d.mlp_in;
        }
        if constexpr (buffered)
            mlp().backward_input(queue, batch, p.mlp, b, in.mlp, g, d.mlp, w.mlp, w.dnormed);
        else
            mlp().backward_input(queue, p.mlp, in.mlp, g, d.mlp, w.mlp, w.dnormed, false);
        if (gradients != nullptr) mlp().backward_weight(queue, in.mlp, d.mlp, gradients->mlp);
        ops::fill_zero(queue, d.dmlp_norm.data, of.hidden_size);
        ops::rms_norm_backward<T>(queue, g, true, d.dmlp_norm.data, w.dnormed, in.mid, in.mlp_inverse_rms.data,
                                  p.mlp_norm.data, w.norm_partials);
        if (again.norms) {
            ops::rms_norm<T>(queue, d.attention_in, in.attention_inverse_rms.data, s.x, p.attention_norm.data,
                             of.rms_norm_eps);
            in.self_attn.x = d.attention_in;
        }
        self_attn().backward_input(queue, batch, p.self_attn, in.self_attn, g, d.self_attn, w.self_attn, w.dnormed);
        if (gradients != nullptr) self_attn().backward_weight(queue, in.self_attn, d.self_attn, gradients->self_attn);
        ops::fill_zero(queue, d.dattention_norm.data, of.hidden_size);
        ops::rms_norm_backward<T>(queue, g, true, d.dattention_norm.data, w.dnormed, s.x, in.attention_inverse_rms.data,
                                  p.attention_norm.data, w.norm_partials);
        if (gradients != nullptr) norm_weights(queue, d, *gradients);
    }

    /// The weights' part, when backward_input was called without `gradients`.
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
        const integer n = shape.tokens();
        inside in;
        in.attention_inverse_rms = memory.take<A>(1, n);
        in.mlp_inverse_rms = memory.take<A>(1, n);
        if (!again.norms) {
            in.attention_in = memory.take<T>(n, of.hidden_size);
            in.mlp_in = memory.take<T>(n, of.hidden_size);
        }
        in.mid = memory.take<T>(n, of.hidden_size);
        in.self_attn = self_attn().keep(memory, shape);
        in.mlp = mlp().keep(memory, shape);
        return in;
    }
    template <class Queue>
    void run(Queue& queue, const micro_batch<A>& batch, const parameters<T>& p, buffers& b,
             tensor<const T, axis::tokens, axis::hidden> x, inside& in, stream y, workspace& w) const {
        const stream attention_in = again.norms ? w.attention_in : in.attention_in;
        const stream mlp_in = again.norms ? w.mlp_in : in.mlp_in;
        ops::rms_norm<T>(queue, attention_in, in.attention_inverse_rms.data, x, p.attention_norm.data, of.rms_norm_eps);
        ops::copy(queue, in.mid, x);
        self_attn().forward(queue, batch, p.self_attn, attention_in, in.self_attn, w.self_attn, in.mid);
        ops::rms_norm<T>(queue, mlp_in, in.mlp_inverse_rms.data, in.mid, p.mlp_norm.data, of.rms_norm_eps);
        ops::copy(queue, y, in.mid);
        if constexpr (buffered)
            mlp().forward(queue, batch, p.mlp, b, mlp_in, in.mlp, w.mlp, y);
        else
            mlp().forward(queue, p.mlp, mlp_in, in.mlp, w.mlp, y);
    }
    template <class Queue> void norm_weights(Queue& queue, const deferred& d, parameters<A>& gradients) const {
        ops::add(queue, gradients.mlp_norm, d.dmlp_norm);
        ops::add(queue, gradients.attention_norm, d.dattention_norm);
    }
};

}  // namespace fathom::nn
