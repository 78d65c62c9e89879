// A block over new tokens: attention over what it remembers, the feed-forward layer as ever.
#pragma once

#include <algorithm>
#include <fathom/nn/block.hpp>
#include <fathom/nn/decoder.hpp>

namespace fathom::nn {

/// x += attention(norm(x)); x += feed_forward(norm(x)): the block of x, in place.
template <class T, template <class> class Attention, template <class> class FeedForward>
struct decoder<block<T, Attention, FeedForward>> {
    using A = accumulator_t<T>;
    using layer = block<T, Attention, FeedForward>;
    using attention = decoder<Attention<T>>;
    using stream = typename layer::stream;

    layer of;

    struct workspace {
        stream normed;
        matrix<A> inverse_rms;
        typename attention::workspace self_attn;
        typename layer::feed_forward::saved mlp_saved;
        typename layer::feed_forward::workspace mlp;
    };

    [[nodiscard]] constexpr attention self_attn() const { return {of.self_attn()}; }
    [[nodiscard]] constexpr integer cache_width() const { return self_attn().cache_width(); }
    constexpr workspace work(arena& memory, integer rows) const {
        workspace w;
        w.normed = memory.take<T>(rows, of.of.hidden_size);
        w.inverse_rms = memory.take<A>(1, rows);
        const integer start = memory.used();
        w.self_attn = self_attn().work(memory, rows);
        const integer end = memory.used();
        memory.rewind(start);
        w.mlp_saved = of.mlp().keep(memory, {rows, 1});
        w.mlp = of.mlp().work(memory, {rows, 1});
        memory.rewind(std::max(end, memory.used()));
        return w;
    }
    [[nodiscard]] constexpr integer scratch(integer rows) const {
        return std::max(self_attn().scratch(), of.mlp().scratch({rows, 1}));
    }

    template <class Queue>
    void forward(Queue& queue, const new_tokens<A>& tokens, const typename layer::template parameters<T>& p,
                 typename layer::buffers& b, stream x, matrix<T> cache, workspace& w) const {
        ops::rms_norm<T>(queue, w.normed, w.inverse_rms.data, x, p.attention_norm.data, of.of.rms_norm_eps);
        self_attn().forward(queue, tokens, p.self_attn, w.normed, cache, w.self_attn, x);
        ops::rms_norm<T>(queue, w.normed, w.inverse_rms.data, x, p.mlp_norm.data, of.of.rms_norm_eps);
        if constexpr (layer::buffered)
            of.mlp().forward(queue, tokens.batch, p.mlp, b, w.normed, w.mlp_saved, w.mlp, x);
        else
            of.mlp().forward(queue, p.mlp, w.normed, w.mlp_saved, w.mlp, x);
    }
};

}  // namespace fathom::nn
