// What the layers of a rank's stages hand to operations between ranks in one micro-batch.
#pragma once

#include <fathom/cost/traffic.hpp>
#include <fathom/models/transformer.hpp>
#include <fathom/nn/context_exchange.hpp>
#include <fathom/parallel/degrees.hpp>

namespace fathom::detail {

/// Adds to a traffic what micro-batches of one shape need, `times` of them. Layers say their sizes; which of their
/// matrices travel stands here, in the order of their code. A depth is one of multi-token prediction; 0 is the model.
template <class Transformer> struct layer_traffic {
    using T = typename Transformer::number;
    using A = typename Transformer::A;
    using among = cost::among;
    using operation = comm::operation;
    static constexpr integer of_number = sizeof(T), of_sum = sizeof(A);

    const Transformer& model;  // this rank's share
    nn::extents main;          // of a micro-batch here
    bool balances;             // the balance loss has a weight
    cost::traffic& to;

    constexpr void forward(integer chunk, integer times) const {
        if (model.held[chunk].embedding) share(operation::reduce_scatter, 0, times);
        each_block(chunk, [&](const auto& layer, integer count) {
            block_forward(layer, 0, times * count);
            count_rows(layer, 0, times * count);
        });
        if (!model.held[chunk].head) return;
        for (integer k = 1; k <= model.of.num_nextn_predict_layers; ++k) {
            share(operation::reduce_scatter, k, times);  // the embedding
            share(operation::all_gather, k - 1, times);  // the depth before
            block_forward(model.mtp().layer, k, times);
            count_rows(model.mtp().layer, k, times);
        }
    }
    constexpr void backward(integer chunk, integer times) const {
        if (model.held[chunk].head) {
            head(0, times);
            for (integer k = 1; k <= model.of.num_nextn_predict_layers; ++k) {
                head(k, times);
                block_backward(model.mtp().layer, k, times);
                share(operation::all_gather, k, 2 * times);  // gradients of the embedding and of the depth before
            }
        }
        each_block(chunk, [&](const auto& layer, integer count) { block_backward(layer, 0, times * count); });
        if (model.held[chunk].embedding) share(operation::all_gather, 0, times);
    }
    /// Numbers of the residual stream that go from stage to stage for a micro-batch.
    [[nodiscard]] constexpr integer stream() const { return tokens_here(0) * model.of.hidden_size; }

  private:
    [[nodiscard]] constexpr integer tensor_ranks() const { return model.of.tensor.ranks; }
    [[nodiscard]] constexpr integer context_ranks() const { return model.of.context.ranks; }
    [[nodiscard]] constexpr nn::extents shape(integer depth) const {
        return depth == 0 ? main : model.shorter(main, depth);
    }
    [[nodiscard]] constexpr integer tokens_here(integer depth) const {
        return share_of{shape(depth).tokens(), tensor_ranks(), model.of.tensor.rank}.count;
    }
    template <class Call> constexpr void each_block(integer chunk, Call&& call) const {
        model.each_segment([&](const auto& part, auto) {
            if (const integer n = model.held.part(chunk, part.first, part.count).count; n > 0) call(part.layer, n);
        });
    }
    constexpr void add(among ranks, operation kind, integer bytes) const { to.fixed.add(ranks, kind, bytes); }

    /// Tokens of the residual stream between a share and the whole.
    constexpr void share(operation kind, integer depth, integer times) const {
        if (tensor_ranks() == 1) return;
        const integer each = share_of{shape(depth).tokens(), tensor_ranks(), 0}.each;
        add(among::tensor, kind, times * tensor_ranks() * each * model.of.hidden_size * of_number);
    }
    constexpr void head(integer depth, integer times) const {
        if (tensor_ranks() == 1) return;
        share(operation::all_gather, depth, times);
        share(operation::reduce_scatter, depth, times);
        constexpr integer of_token = 3 * sizeof(double);  // the largest logit, and two sums
        add(among::tensor, operation::all_reduce, times * shape(depth).tokens() * of_token);
    }
    template <class Block> constexpr void block_forward(const Block& layer, integer depth, integer times) const {
        share(operation::all_gather, depth, times);
        attention(layer.self_attn(), depth, times, 0);
        share(operation::reduce_scatter, depth, times);
        if constexpr (Block::buffered) return experts_forward(layer.mlp(), depth, times);
        share(operation::all_gather, depth, times);
        share(operation::reduce_scatter, depth, times);
    }
    template <class Block> constexpr void block_backward(const Block& layer, integer depth, integer times) const {
        if (layer.again.blocks) block_forward(layer, depth, times);
        share(operation::all_gather, depth, 2 * times);  // the input again, and the gradient
        attention(layer.self_attn(), depth, 0, times);
        share(operation::reduce_scatter, depth, times);
        if constexpr (Block::buffered) return experts_backward(layer.mlp(), depth, times);
        share(operation::all_gather, depth, 2 * times);
        share(operation::reduce_scatter, depth, times);
    }

    /// Keys and values of sequences that ranks share.
    constexpr void attention(const auto& layer, integer depth, integer forwards, integer backwards) const {
        const integer ranks = context_ranks();
        if (ranks == 1) return;
        constexpr bool latent = requires { layer.of.kv_lora_rank; };
        integer of_ring = 0, of_gather = 0, gathers = forwards;  // numbers of a token
        if constexpr (latent) {
            of_ring = layer.keys_values() + layer.of.qk_rope_head_dim;
            of_gather = layer.kv_a();
            if (layer.again.norms) gathers += backwards;
        } else {
            of_ring = of_gather = 2 * layer.keys();
            gathers += backwards;
        }
        const nn::extents of = shape(depth);
        if (layer.of.exchange == nn::context_exchange::all_gather) {
            const integer numbers = ranks * of.most_tokens() * of_gather * of_number;
            add(among::context, operation::all_gather, gathers * numbers);
            return add(among::context, operation::reduce_scatter, backwards * numbers);
        }
        // In step n a rank passes on the rows of the n-th rank before it; gradients go one step further, home.
        const nn::context_share context = model.context_of(main, depth);
        integer rows = 0;
        for (integer rank = 0; rank < ranks; ++rank) rows += of.sequences * context.count(rank);
        const integer last = of.sequences * context.count((model.of.context.rank + 1) % ranks);
        add(among::context, operation::exchange,
            of_ring * ((forwards + backwards) * (rows - last) * of_number + backwards * rows * of_sum));
    }

    // Experts: rows are sent for tokens, whatever these choose; what is sent back is what was received.

    constexpr void experts_forward(const auto& layer, integer depth, integer times) const {
        const integer ranks = layer.of.expert.ranks, lanes = layer.of.expert_tensor.ranks;
        const integer experts = layer.of.n_routed_experts;
        const integer counts = times * ranks * (experts + 1) * static_cast<integer>(sizeof(integer));
        if (ranks > 1) add(among::expert, operation::all_gather, counts);
        if (lanes > 1) add(among::expert_tensor, operation::all_gather, lanes * counts);
        const integer sums = times * shape(depth).sequences * 2 * experts * static_cast<integer>(sizeof(double));
        if (balances && tensor_ranks() > 1) add(among::tensor, operation::all_reduce, sums);
        if (balances && context_ranks() > 1) add(among::context, operation::all_reduce, sums);
        send_rows(layer, depth, times, of_token(layer) + of_sum, to.fixed);
    }
    constexpr void experts_backward(const auto& layer, integer depth, integer times) const {
        send_rows(layer, depth, times, of_token(layer), to.fixed);
        const integer again = of_token(layer) + of_sum;  // inputs of the rounds after the first
        send_rows(layer, depth, times, again, to.repeated);
        if (const integer lanes = layer.of.expert_tensor.ranks; lanes > 1)
            to.repeated.add(among::expert_tensor, operation::all_gather,
                            times * lanes * most_rows(layer, depth) * again);
    }
    constexpr void send_rows(const auto& layer, integer depth, integer times, integer bytes,
                             cost::byte_table& table) const {
        if (layer.of.expert.ranks > 1)
            table.add(among::expert, operation::all_to_all, times * tokens_here(depth) * layer.top_k() * bytes);
    }
    /// The rows that a forward brings here, and what each causes until its backward is done.
    template <class Block> constexpr void count_rows(const Block& layer, integer depth, integer times) const {
        if constexpr (Block::buffered) {
            const auto experts = layer.mlp();
            to.even_rows += times * tokens_here(depth) * experts.top_k();
            to.most_rows += times * most_rows(experts, depth);
            const integer forwards = layer.again.blocks ? 2 : 1, token = of_token(experts);
            const integer there = forwards * (token + of_sum) + token, back = (forwards + 1) * token + of_sum;
            to.of_row = {};
            if (experts.of.expert.ranks > 1) to.of_row.add(among::expert, operation::all_to_all, back);
            if (const integer lanes = experts.of.expert_tensor.ranks; lanes > 1) {
                to.of_row.add(among::expert_tensor, operation::all_gather, lanes * there);
                to.of_row.add(among::expert_tensor, operation::reduce_scatter, lanes * back);
            }
        }
    }
    [[nodiscard]] static constexpr integer of_token(const auto& layer) { return layer.of.hidden_size * of_number; }
    [[nodiscard]] constexpr integer most_rows(const auto& layer, integer depth) const {
        const integer each = share_of{shape(depth).most_tokens(), tensor_ranks(), 0}.each;
        return layer.of.expert.ranks * layer.capacity(each);
    }
};

}  // namespace fathom::detail
