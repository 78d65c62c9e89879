// Multi-head latent attention over cached latents: what a token leaves behind is its latent and one rotary key,
// whatever the number of heads.
#pragma once

#include <algorithm>
#include <fathom/nn/decoder.hpp>
#include <fathom/nn/latent_attention.hpp>
#include <fathom/ops/decode_attention.hpp>

namespace fathom::nn {

/// y += o(attention(...)) as latent_attention, with W_kvb absorbed: q_nope W_kb meets the cached latents themselves,
/// and W_vb is applied to their weighted sum (DeepSeek-V2 report, section 2.1.2). Between the absorbed products numbers
/// are in the format of sums. A cached row is [norm(c_kv) | rotated k_r].
template <class T> struct decoder<latent_attention<T>> {
    using A = accumulator_t<T>;
    using layer = latent_attention<T>;
    using parameters = typename layer::template parameters<T>;

    layer of;

    struct workspace {
        typename layer::saved s;  // a, norms and latents, queries and out: what forward makes of the new tokens
        matrix<A> q, mixed;  // q[rows, heads * (kv_lora_rank + qk_rope_head_dim)], mixed[rows, heads * kv_lora_rank]
    };

    [[nodiscard]] constexpr integer cache_width() const { return of.kv_a(); }
    constexpr workspace work(arena& memory, integer rows) const {
        const latent_attention_facts& f = of.of;
        workspace w;
        w.s.a = memory.take<T>(rows, of.lead() + of.kv_a());
        w.s.kv_inverse_rms = memory.take<A>(1, rows);
        w.s.c_kv = memory.take<T>(rows, f.kv_lora_rank);
        if (of.latent_queries()) {
            w.s.q_inverse_rms = memory.take<A>(1, rows);
            w.s.c_q = memory.take<T>(rows, f.q_lora_rank);
            w.s.q = memory.take<T>(rows, of.queries());
        }
        w.s.out = memory.take<T>(rows, of.values());
        w.q = memory.take<A>(rows, f.num_attention_heads * of.kv_a());
        w.mixed = memory.take<A>(rows, f.num_attention_heads * f.kv_lora_rank);
        return w;
    }
    [[nodiscard]] constexpr integer scratch() const {
        return std::max(ops::decode_attention_scratch<T>(heads(0)), ops::product_scratch<T>());
    }

    template <class Queue>
    void forward(Queue& queue, const new_tokens<A>& tokens, const parameters& p,
                 tensor<const T, axis::tokens, axis::hidden> x, matrix<T> cache, workspace& w,
                 tensor<T, axis::tokens, axis::hidden> y) const {
        const latent_attention_facts& f = of.of;
        const integer nope = f.qk_nope_head_dim, rope = f.qk_rope_head_dim, latent = f.kv_lora_rank;
        project(queue, w.s.a, x, p.a);
        if (f.attention_bias) ops::add_bias(queue, of.biased(w.s.a), p.a_bias);
        const matrix<T> key = w.s.a.columns_at(of.lead() + latent, rope);
        of.rotate(queue, tokens.batch, key, 1, rope, 0, false);
        of.norm_latents(queue, p, w.s, w.s.c_q, w.s.c_kv);
        const auto q = of.latent_queries() ? w.s.q : w.s.a.template part<axis::queries>(0, of.queries());
        if (of.latent_queries()) project(queue, q, w.s.c_q, p.q_b);
        of.rotate_queries(queue, tokens.batch, q, false);
        queue.enqueue(x.rows, [&](integer r, int) {
            T* to = cache.row(tokens.cache_row(r));
            std::copy_n(key.row(r), rope, std::copy_n(w.s.c_kv.row(r), latent, to));
            for (integer h = 0; h < f.num_attention_heads; ++h)
                for (integer c = 0; c < rope; ++c)
                    w.q(r, h * (latent + rope) + latent + c) = static_cast<A>(q(r, h * (nope + rope) + nope + c));
        });
        ops::heads_product(queue, f.num_attention_heads, w.q.columns_at(0, latent), latent + rope,
                           q.columns_at(0, nope), nope + rope, ops::side::plain, p.kv_b.rows_at(0, nope),
                           nope + f.v_head_dim);
        ops::decode_attention<T>(queue, heads(of.scale()), w.q,
                                 {.k = cache, .v = cache.columns_at(0, latent), .capacity = tokens.capacity},
                                 tokens.sequences, tokens.batch.positions, w.mixed);
        ops::heads_product(queue, f.num_attention_heads, w.s.out.columns_at(0, f.v_head_dim), f.v_head_dim,
                           w.mixed.columns_at(0, latent), latent, ops::side::transposed,
                           p.kv_b.rows_at(nope, f.v_head_dim), nope + f.v_head_dim);
        project(queue, y, w.s.out, p.o, true);
        if (f.attention_bias) ops::add_bias(queue, y, p.o_bias);
    }

    /// One key and value for all heads.
    [[nodiscard]] constexpr ops::attention_facts heads(double scale) const {
        return {.heads = of.of.num_attention_heads,
                .kv_heads = 1,
                .qk_dim = of.kv_a(),
                .v_dim = of.of.kv_lora_rank,
                .scale = scale};
    }
};

}  // namespace fathom::nn
