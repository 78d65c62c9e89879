// The contract of layers, kept by blocks of every kind: input-backward and weight-backward apart are the two together,
// memory lasts as long as it says, and gradients are slopes.
#include <fathom/nn/block.hpp>

#include "small_block.hpp"

namespace fathom::test {

namespace {

constexpr nn::extents shape{2, 6};

/// What a stack of three blocks gives. Apart: input-backward through all blocks, then their weights.
template <class Block> struct run {
    std::vector<double> y, dx;
    std::vector<std::unique_ptr<block_state<Block>>> blocks;

    run(const Block& layer, bool apart) {
        two_workers workers{layer.scratch(shape)};
        small_batch<double> batch{small_rope, Block::buffered ? 0.1 : 0};
        const auto keep = [&](arena& memory) { return layer.keep(memory, shape); };
        const auto defer = [&](arena& memory) { return layer.defer(memory, shape, apart); };
        carved work{[&](arena& memory) { return layer.work(memory, shape); }};
        std::vector<std::unique_ptr<carved<decltype(keep)>>> saved;
        std::vector<std::unique_ptr<carved<decltype(defer)>>> deferred;
        for (std::uint64_t i = 0; i < 3; ++i) {
            blocks.push_back(std::make_unique<block_state<Block>>(layer, i));
            saved.push_back(std::make_unique<carved<decltype(keep)>>(keep));
            if (i == 0 || apart) deferred.push_back(std::make_unique<carved<decltype(defer)>>(defer));
        }
        drawn<double> x{shape.tokens(), layer.of.hidden_size, 10}, g{shape.tokens(), layer.of.hidden_size, 11};
        tensor<const double, axis::tokens, axis::hidden> stream{x.view};
        for (std::size_t i = 0; i < 3; ++i) {
            layer.forward(workers.queue, batch.view, blocks[i]->parameters, blocks[i]->buffers, stream, **saved[i],
                          *work);
            stream = (*saved[i])->y;
            work.poison();  // what a call used is gone when it returns
        }
        y.assign(stream.data, stream.data + stream.size());
        for (std::size_t i = 3; i-- > 0;) {
            auto& d = *deferred[apart ? i : 0];
            if (!apart) d.poison();  // what was deferred is gone when the weights are done
            layer.backward_input(workers.queue, batch.view, blocks[i]->parameters, blocks[i]->buffers, **saved[i],
                                 typename Block::stream{g.view}, *d, *work, apart ? nullptr : &blocks[i]->gradients);
            work.poison();
        }
        for (std::size_t i = 0; apart && i < 3; ++i)
            layer.backward_weight(workers.queue, **saved[i], **deferred[i], blocks[i]->gradients);
        dx = g.numbers;
    }
};

template <class E> bool same(const std::vector<E>& a, const std::vector<E>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(E)) == 0;
}

template <class Block> void check_apart(integer q_lora_rank = 12) {
    const run<Block> expected{small_block<Block>({}, q_lora_rank), false};
    CHECK(std::isfinite(expected.dx[0]));
    const nn::recomputation choices[] = {
        {},
        {.norms = true},
        {.up_projections = true},
        {.swiglu = true},
        {.blocks = true},
        {.norms = true, .up_projections = true, .swiglu = true},
        {.norms = true, .up_projections = true, .swiglu = true, .blocks = true},
    };
    for (const auto& again : choices)
        for (const bool apart : {false, true}) {
            INFO("norms ", again.norms, ", up_projections ", again.up_projections, ", swiglu ", again.swiglu,
                 ", blocks ", again.blocks, ", apart ", apart);
            const run<Block> found{small_block<Block>(again, q_lora_rank), apart};
            CHECK(same(found.y, expected.y));
            CHECK(same(found.dx, expected.dx));
            for (std::size_t i = 0; i < 3; ++i) {
                CHECK(found.blocks[i]->slopes.same_bits(expected.blocks[i]->slopes));
                CHECK(found.blocks[i]->load == expected.blocks[i]->load);
            }
        }
}

/// The loss is a weighted sum of y, and the balance loss.
template <class Block> void check_gradients(const Block& layer, const std::vector<double>& router_bias = {}) {
    two_workers workers{layer.scratch(shape)};
    small_batch<double> batch{small_rope, Block::buffered ? 0.1 : 0};
    block_state<Block> state{layer, 20};
    if (!router_bias.empty()) std::copy(router_bias.begin(), router_bias.end(), state.bias.begin());
    carved saved{[&](arena& memory) { return layer.keep(memory, shape); }};
    carved deferred{[&](arena& memory) { return layer.defer(memory, shape, false); }};
    carved work{[&](arena& memory) { return layer.work(memory, shape); }};
    drawn<double> x{shape.tokens(), layer.of.hidden_size, 21}, g{shape.tokens(), layer.of.hidden_size, 22};
    const auto dy = g.numbers;
    const auto loss = [&] {
        batch.balance_loss = 0;
        layer.forward(workers.queue, batch.view, state.parameters, state.buffers,
                      tensor<const double, axis::tokens, axis::hidden>{x.view}, *saved, *work);
        double sum = batch.balance_loss;
        for (std::size_t i = 0; i < dy.size(); ++i) sum += dy[i] * saved->y.data[i];
        return sum;
    };
    loss();
    if constexpr (Block::buffered) {
        integer routed = 0;
        for (integer e = 0; e < layer.of.mlp.n_routed_experts; ++e) routed += state.load[static_cast<std::size_t>(e)];
        CHECK(routed == shape.tokens() * layer.of.mlp.router.top_k);
        const auto i = layer.of.mlp.moe_intermediate_size, h = layer.of.hidden_size;
        CHECK(state.gradients.mlp.gate_up.rows == layer.of.mlp.n_routed_experts * 2 * i);
        if (!router_bias.empty()) {
            CHECK(state.load.front() == shape.tokens());
            CHECK(state.load.back() == 0);
        }
        layer.backward_input(workers.queue, batch.view, state.parameters, state.buffers, *saved,
                             typename Block::stream{g.view}, *deferred, *work, &state.gradients);
        for (integer e = 0; e < layer.of.mlp.n_routed_experts; ++e) {
            const auto all_zero = [](matrix<double> m) {
                for (integer r = 0; r < m.rows; ++r)
                    for (integer c = 0; c < m.width; ++c)
                        if (m(r, c) != 0) return false;
                return true;
            };
            INFO("expert ", e);
            const bool idle = state.load[static_cast<std::size_t>(e)] == 0;
            CHECK(all_zero(state.gradients.mlp.gate_up.rows_at(e * 2 * i, 2 * i)) == idle);
            CHECK(all_zero(state.gradients.mlp.down.rows_at(e * h, h)) == idle);
        }
    } else {
        layer.backward_input(workers.queue, batch.view, state.parameters, state.buffers, *saved,
                             typename Block::stream{g.view}, *deferred, *work, &state.gradients);
    }
    check_slopes("x", x.numbers, g.numbers.data(), loss);
    for (std::size_t p = 0; p < state.numbers.all.size(); ++p)
        check_slopes(state.numbers.all[p]->name, state.numbers.all[p]->numbers, state.slopes.all[p]->numbers.data(),
                     loss);
}

}  // namespace

TEST_CASE("block: latent attention and a dense layer, backward apart and recomputed") {
    check_apart<latent_dense>();
    check_apart<latent_dense>(0);
}
TEST_CASE("block: latent attention and experts, backward apart and recomputed") { check_apart<latent_experts>(); }
TEST_CASE("block: grouped queries and a dense layer, backward apart and recomputed") {
    check_apart<grouped_query_dense>();
}
TEST_CASE("block: grouped queries and experts, backward apart and recomputed") { check_apart<grouped_query_experts>(); }

TEST_CASE("block: gradients are slopes, with and without a latent for queries") {
    check_gradients(small_block<latent_dense>({}));
    check_gradients(small_block<latent_dense>({}, 0));
    check_gradients(small_block<grouped_query_dense>({}));
    check_gradients(small_block<grouped_query_dense>({}, 12, false));
}

TEST_CASE("block: gradients of experts are slopes under every rule of routing") {
    check_gradients(small_block<latent_experts>({}));
    auto v2 = small_block<latent_experts>({});
    v2.of.mlp.router.score = ops::router_facts::score_kind::softmax;
    v2.of.mlp.router.group_score = ops::router_facts::group_kind::maximum;
    v2.of.mlp.router.normalise = false;
    v2.of.mlp.n_shared_experts = 0;
    check_gradients(v2);
    auto moe = small_block<grouped_query_experts>({.blocks = true});
    moe.of.mlp.router = {.experts = 8, .top_k = 2, .score = ops::router_facts::score_kind::softmax};
    moe.of.mlp.n_shared_experts = 2;
    check_gradients(moe);
}

TEST_CASE("block: one expert gets every token, one gets none") {
    auto layer = small_block<latent_experts>({});
    const std::vector<double> bias{100, 0, 0, 0, 0, 0, 0, -100};
    layer.of.mlp.router.groups = layer.of.mlp.router.topk_group = 1;
    layer.of.mlp.router.top_k = 2;
    check_gradients(layer, bias);
    layer.of.mlp.router.top_k = 1;
    check_gradients(layer, bias);
}

}  // namespace fathom::test
