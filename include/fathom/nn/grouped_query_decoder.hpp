// Grouped-query attention over cached keys and values.
#pragma once

#include <algorithm>
#include <fathom/nn/decoder.hpp>
#include <fathom/nn/grouped_query_attention.hpp>
#include <fathom/ops/decode_attention.hpp>

namespace fathom::nn {

/// y += o(attention(q, k, v)) as grouped_query_attention. A cached row is [rotated k | v] of all kv heads.
template <class T> struct decoder<grouped_query_attention<T>> {
    using A = accumulator_t<T>;
    using layer = grouped_query_attention<T>;
    using parameters = typename layer::template parameters<T>;

    layer of;

    struct workspace {
        tensor<T, axis::tokens, axis::queries_keys_values> qkv;
        tensor<T, axis::tokens, axis::values> out;
    };

    [[nodiscard]] constexpr integer cache_width() const { return 2 * of.keys(); }
    constexpr workspace work(arena& memory, integer rows) const {
        workspace w;
        w.qkv = memory.take<T>(rows, of.all());
        w.out = memory.take<T>(rows, of.queries());
        return w;
    }
    [[nodiscard]] constexpr integer scratch() const {
        return std::max(ops::decode_attention_scratch<T>(of.heads(0)), ops::product_scratch<T>());
    }

    template <class Queue>
    void forward(Queue& queue, const new_tokens<A>& tokens, const parameters& p,
                 tensor<const T, axis::tokens, axis::hidden> x, matrix<T> cache, workspace& w,
                 tensor<T, axis::tokens, axis::hidden> y) const {
        const integer dim = of.of.head_dim;
        of.make_queries_keys_values(queue, tokens.batch, p, x, w.qkv);
        queue.enqueue(x.rows, [&](integer r, int) {
            std::copy_n(w.qkv.row(r) + of.queries(), cache_width(), cache.row(tokens.cache_row(r)));
        });
        ops::decode_attention<T>(queue, of.heads(of.scale()), w.qkv.columns_at(0, of.queries()),
                                 {.k = cache,
                                  .k_head_stride = dim,
                                  .v = cache.columns_at(of.keys(), of.keys()),
                                  .v_head_stride = dim,
                                  .capacity = tokens.capacity},
                                 tokens.sequences, tokens.batch.positions, matrix<T>{w.out});
        project(queue, y, w.out, p.o, true);
        if (of.of.attention_bias) ops::add_bias(queue, y, p.o_bias);
    }
};

}  // namespace fathom::nn
