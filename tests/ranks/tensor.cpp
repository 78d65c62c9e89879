// Tensor parallelism with shares of tokens: blocks, the embedding, the head with its loss and multi-token prediction
// give one rank's numbers, for shares that are uneven or empty, under every recomputation, with weights apart.
#include <fathom/comm/threads/run.hpp>
#include <fathom/nn/context_grouped_query_attention.hpp>
#include <fathom/nn/context_latent_attention.hpp>
#include <fathom/nn/dispatched_experts.hpp>
#include <fathom/nn/language_head.hpp>
#include <fathom/nn/multi_token_prediction.hpp>
#include <fathom/nn/token_embedding.hpp>
#include <numeric>

#include "../unit/nn/small_block.hpp"
#include "parameter_slices.hpp"

namespace fathom::test {

namespace {

using const_stream = tensor<const double, axis::tokens, axis::hidden>;
using stream = tensor<double, axis::tokens, axis::hidden>;
constexpr integer hidden_size = 16, vocab_size = 20;
constexpr integer rank_numbers[] = {1, 2, 4};
// Tokens of two sequences: 12 divide by 4; of 10 the last of 4 ranks has one, of 6 and 2 it has none.
constexpr integer lengths[] = {6, 5, 3, 1};

/// call(rank's links) on so many tensor (and context) ranks, which also hold the experts.
template <class Call> void on_ranks(integer tensor, integer context, Call&& call) {
    comm::threads::run(tensor * context, [&](auto& mine) {
        const comm::mesh_links links{comm::link{mine}, degrees{.tp = tensor, .cp = context, .ep = tensor * context}};
        call(links);
    });
}

/// The split block with the facts of a whole one, for one of some ranks.
template <class Mine, class Whole>
Mine split_block(const Whole& whole, nn::split_over tensor, nn::split_over context = {}) {
    Mine layer{};
    layer.again = whole.again;
    layer.of.hidden_size = whole.of.hidden_size;
    layer.of.rms_norm_eps = whole.of.rms_norm_eps;
    layer.of.self_attn = whole.of.self_attn;
    layer.of.self_attn.context = context;
    if constexpr (Mine::buffered) {
        static_cast<nn::experts_facts&>(layer.of.mlp) = whole.of.mlp;
        layer.of.mlp.expert = {tensor.ranks * context.ranks, context.rank * tensor.ranks + tensor.rank};
        layer.of.mlp.expert_tokens = 8;  // all that may come: one round
    } else {
        layer.of.mlp = whole.of.mlp;
    }
    layer.of.self_attn.tensor = layer.of.mlp.tensor = layer.of.tensor = tensor;
    return layer;
}

/// Two blocks, one upon the other, forward and backward: y, and from g, their gradient, to that of x. Workspaces and
/// what is deferred hold no longer than they promise.
template <class Block> struct stack {
    std::vector<std::unique_ptr<block_state<Block>>> blocks;
    std::vector<double> y;

    explicit stack(const Block& layer) {
        for (std::uint64_t i = 0; i < 2; ++i) blocks.push_back(std::make_unique<block_state<Block>>(layer, i));
    }
    void run(const Block& layer, host::queue& queue, const nn::micro_batch<double>& batch, const_stream x, stream g,
             bool apart) {
        const auto keep = [&](arena& memory) { return layer.keep(memory, batch.shape); };
        const auto defer = [&](arena& memory) { return layer.defer(memory, batch.shape, apart); };
        carved work{[&](arena& memory) { return layer.work(memory, batch.shape); }};
        std::vector<std::unique_ptr<carved<decltype(keep)>>> saved;
        std::vector<std::unique_ptr<carved<decltype(defer)>>> deferred;
        for (std::size_t i = 0; i < 2; ++i) {
            saved.push_back(std::make_unique<carved<decltype(keep)>>(keep));
            if (i == 0 || apart) deferred.push_back(std::make_unique<carved<decltype(defer)>>(defer));
        }
        for (std::size_t i = 0; i < 2; ++i) {
            layer.forward(queue, batch, blocks[i]->parameters, blocks[i]->buffers, x, **saved[i], *work);
            x = (*saved[i])->y;
            work.poison();
        }
        y.assign(x.data, x.data + x.size());
        for (std::size_t i = 2; i-- > 0;) {
            auto& d = *deferred[apart ? i : 0];
            if (!apart) d.poison();
            layer.backward_input(queue, batch, blocks[i]->parameters, blocks[i]->buffers, **saved[i], g, *d, *work,
                                 apart ? nullptr : &blocks[i]->gradients);
            work.poison();
        }
        for (std::size_t i = 0; apart && i < 2; ++i)
            layer.backward_weight(queue, **saved[i], **deferred[i], blocks[i]->gradients);
    }
};

template <class Mine, class Whole> void check_stack(const Whole& layer, integer length, integer ranks, bool apart_too) {
    small_batch<double> batch{small_rope, 0.1, length};
    drawn<double> x{batch.shape.tokens(), hidden_size, 10}, g{batch.shape.tokens(), hidden_size, 11};
    const auto dy = g;
    Whole whole = layer;
    whole.again = {};
    stack<Whole> expected{whole};
    one_worker worker{whole.scratch(batch.shape)};
    expected.run(whole, worker.queue, batch.view, const_stream{x.view}, stream{g.view}, false);

    std::vector<double> y(x.numbers.size()), dx = dy.numbers;
    std::vector<stack<Mine>> found;
    std::vector<Mine> layers;
    for (integer r = 0; r < ranks; ++r) {
        layers.push_back(split_block<Mine>(layer, {ranks, r}));
        auto& mine = found.emplace_back(layers.back());
        for (std::size_t i = 0; i < 2; ++i)
            take_slices(whole, expected.blocks[i]->numbers, layers.back(), mine.blocks[i]->numbers);
    }
    on_ranks(ranks, 1, [&](const comm::mesh_links& links) {
        const auto r = static_cast<std::size_t>(links.at.tp);
        auto view = batch.view;
        view.ranks = &links;
        double balance = 0;  // looked at below, with the module
        view.balance_loss = &balance;
        const share_of share = view.stream_tokens(view.shape);
        one_worker own{layers[r].scratch(view.shape)};
        const matrix<double> gradient{dx.data() + share.first * hidden_size, share.count, hidden_size};
        found[r].run(layers[r], own.queue, view, const_stream{x.view.rows_at(share.first, share.count)},
                     stream{gradient}, apart_too);
        std::copy(found[r].y.begin(), found[r].y.end(), y.begin() + share.first * hidden_size);
    });
    CHECK(apart(y, expected.y) < 1e-10);
    CHECK(apart(dx, g.numbers) < 1e-10);
    for (std::size_t i = 0; i < 2; ++i) {
        block_state<Whole> sum{whole, 0};
        std::vector<integer> load(expected.blocks[i]->load.size());
        for (std::size_t r = 0; r < found.size(); ++r) {
            add_slices(whole, sum.slopes, layers[r], found[r].blocks[i]->slopes);
            for (std::size_t e = 0; e < load.size(); ++e) load[e] += found[r].blocks[i]->load[e];
        }
        CHECK(apart(sum.slopes, expected.blocks[i]->slopes) < 1e-10);
        CHECK(load == expected.blocks[i]->load);
    }
}

const nn::recomputation recomputations[] = {
    {},
    {.norms = true},
    {.up_projections = true},
    {.swiglu = true},
    {.blocks = true},
    {.norms = true, .up_projections = true, .swiglu = true},
    {.norms = true, .up_projections = true, .swiglu = true, .blocks = true},
};

template <class Mine, class Whole> void check_block(integer q_lora_rank = 12) {
    for (const auto& again : recomputations)
        for (const integer ranks : rank_numbers)
            for (const integer length : lengths)
                for (const bool apart_too : {false, true}) {
                    INFO("norms ", again.norms, ", up_projections ", again.up_projections, ", swiglu ", again.swiglu,
                         ", blocks ", again.blocks, ", ranks ", ranks, ", length ", length, ", apart ", apart_too);
                    auto layer = small_block<Whole>(again, q_lora_rank);
                    layer.of.self_attn.num_attention_heads = 4;
                    check_stack<Mine>(layer, length, ranks, apart_too);
                }
}

using split_latent_dense = nn::block<double, nn::context_latent_attention, nn::feed_forward, true>;
using split_latent_experts = nn::block<double, nn::context_latent_attention, nn::dispatched_experts, true>;
using split_grouped_query_dense = nn::block<double, nn::context_grouped_query_attention, nn::feed_forward, true>;

}  // namespace

TEST_CASE("tensor ranks: a block of latent attention and a dense layer") {
    check_block<split_latent_dense, latent_dense>();
    check_block<split_latent_dense, latent_dense>(0);
}
TEST_CASE("tensor ranks: a block of grouped queries and a dense layer") {
    check_block<split_grouped_query_dense, grouped_query_dense>();
}
TEST_CASE("tensor ranks: a block of latent attention and experts, which read shares") {
    check_block<split_latent_experts, latent_experts>();
}

TEST_CASE("tensor ranks: a batch for other ranks is refused") {
    const auto layer = split_block<split_grouped_query_dense>(small_block<grouped_query_dense>({}), {2, 0});
    small_batch<double> batch{small_rope};
    stack<split_grouped_query_dense> alone{layer};
    one_worker worker{layer.scratch(batch.shape)};
    drawn<double> x{6, hidden_size, 1}, g{6, hidden_size, 2};
    CHECK_THROWS_WITH_AS(alone.run(layer, worker.queue, batch.view, const_stream{x.view}, stream{g.view}, false),
                         "tensor_exchange: found a batch for 1 tensor ranks, expected the 2 that split the layer",
                         error);
}

namespace {

std::vector<std::int32_t> drawn_ids(integer count, std::uint64_t seed, bool ignored = false) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
    const random_stream source{seed, 5};
    for (std::size_t i = 0; i < ids.size(); ++i)
        ids[i] = ignored && i % 5 == 3 ? ops::ignored_target
                                       : static_cast<std::int32_t>(source.uniform(i) * static_cast<double>(vocab_size));
    return ids;
}
template <class E, class Axis = axis::hidden> tensor<E, axis::vocabulary, Axis> table(matrix<E> m) { return {m}; }

/// The embedding and the head, forward and backward, of one matrix where they are tied; logits of `rows` tokens at
/// once.
template <bool Split> struct ends {
    std::vector<double> embedded, dx, dtable, dhead;
    nn::loss_sums sums, forward_sums;

    ends(nn::split_over over, const nn::micro_batch<double>& batch, const drawn<double>& all, const drawn<double>& of_x,
         bool tied, integer rows) {
        const nn::token_embedding<double, Split> embedding{hidden_size, vocab_size, over};
        const nn::language_head<double, Split> head{hidden_size, vocab_size, over};
        const auto ids = drawn_ids(batch.shape.tokens(), 1), targets = drawn_ids(batch.shape.tokens(), 2, true);
        const integer own = over.share(vocab_size);
        const auto weights = table<const double>(all.view.rows_at(over.rank * own, own));
        const share_of share{batch.shape.tokens(), over.ranks, over.rank};
        const const_stream x{of_x.view.rows_at(share.first, share.count)};
        carved work{[&](arena& memory) { return embedding.work(memory, batch.shape); }};
        carved head_work{[&](arena& memory) { return head.work(memory, batch.shape); }};
        head_work->rows = std::min(rows, head_work->rows);
        one_worker worker{head.scratch()};

        embedded.assign(static_cast<std::size_t>(x.size()), 99);
        dx = embedded;
        dtable.assign(static_cast<std::size_t>(weights.size()), 0.5);
        dhead = dtable;
        const auto gradient = table<double>({dtable.data(), own, hidden_size});
        const auto head_gradient = tied ? gradient : table<double>({dhead.data(), own, hidden_size});
        const stream y{{embedded.data(), x.rows, hidden_size}}, slope{{dx.data(), x.rows, hidden_size}};
        embedding.forward(worker.queue, batch, weights, ids.data(), y, *work);
        head.forward_backward(worker.queue, batch, x, weights, targets.data(), 0.3, 0.02, *head_work, slope,
                              head_gradient, sums);
        head_work.poison();
        head.forward(worker.queue, batch, x, weights, targets.data(), *head_work, forward_sums);
        work.poison();
        embedding.backward(worker.queue, batch, gradient, ids.data(), slope, *work);
    }
};

void check_ends(integer ranks, integer length, bool tied, integer rows, double size) {
    small_batch<double> batch{small_rope, 0, length};
    const drawn<double> weights{vocab_size, hidden_size, 3, 0.5}, x{batch.shape.tokens(), hidden_size, 4, size};
    const ends<false> expected{{}, batch.view, weights, x, tied, rows};
    std::vector<std::unique_ptr<ends<true>>> found(static_cast<std::size_t>(ranks));
    on_ranks(ranks, 1, [&](const comm::mesh_links& links) {
        auto view = batch.view;
        view.ranks = &links;
        found[static_cast<std::size_t>(links.at.tp)] =
            std::make_unique<ends<true>>(nn::split_over{ranks, links.at.tp}, view, weights, x, tied, rows);
    });
    std::vector<double> embedded, dx, dtable, dhead;
    const auto append = [](std::vector<double>& to, const std::vector<double>& from) {
        to.insert(to.end(), from.begin(), from.end());
    };
    for (const auto& mine : found) {
        append(embedded, mine->embedded);
        append(dx, mine->dx);
        append(dtable, mine->dtable);
        append(dhead, mine->dhead);
        const bool first = mine == found.front();
        CHECK(mine->sums.cross_entropy == doctest::Approx(first ? expected.sums.cross_entropy : 0).epsilon(1e-12));
        CHECK(mine->sums.z == doctest::Approx(first ? expected.sums.z : 0).epsilon(1e-12));
        CHECK(mine->forward_sums.cross_entropy == mine->sums.cross_entropy);
        CHECK(mine->forward_sums.z == mine->sums.z);
    }
    CHECK(embedded == expected.embedded);
    CHECK(apart(dx, expected.dx) < 1e-10);
    CHECK(apart(dtable, expected.dtable) < 1e-10);
    CHECK(apart(dhead, expected.dhead) < 1e-10);
}

}  // namespace

TEST_CASE("tensor ranks: embedding and head, apart and tied, with logits of few or all tokens at once") {
    for (const integer ranks : rank_numbers)
        for (const integer length : lengths)
            for (const bool tied : {false, true})
                for (const integer rows : {4, 100})
                    for (const double size : {1.0, 200.0}) {  // large: the ranks' maxima lie far apart
                        INFO("ranks ", ranks, ", length ", length, ", tied ", tied, ", rows ", rows, ", size ", size);
                        check_ends(ranks, length, tied, rows, size);
                    }
}

TEST_CASE("tensor ranks: an id or a target outside the whole vocabulary is refused") {
    host::workers pool{1};
    host::queue queue{pool, nullptr, 0};
    drawn<double> rows{5, hidden_size, 1}, y{1, hidden_size, 2};
    const std::int32_t id = vocab_size;
    CHECK_THROWS_WITH_AS(ops::embed<double>(queue, y.view, &id, rows.view, 15, vocab_size),
                         "embedding: token 0 of the batch is 20, expected an id in [0, 20)", error);
    double most = 0, sums[2];
    CHECK_THROWS_WITH_AS(
        ops::cross_entropy_exponentials(queue, y.view, &id, ops::vocabulary_slice{0, vocab_size}, &most, sums),
        "cross_entropy: row 0 has the target 20, expected an id in [0, 20) or -100 to ignore it", error);
}

namespace {

/// A module of multi-token prediction, forward and backward, on the ids of a shorter batch.
template <class Block> struct prediction {
    using module = nn::multi_token_prediction<double, Block>;
    module layer;
    block_state<Block> router;
    typename module::template parameters<double> parameters{}, gradients{};
    parameter_numbers<double> numbers, slopes;
    std::vector<double> normed, dtable;

    explicit prediction(const module& of) : layer(of), router(of.layer, 0) {
        numbers.bind(layer, parameters, 0.3, 30);
        slopes.bind(layer, gradients, 0, 0);
    }
    prediction(const prediction&) = delete;
    prediction& operator=(const prediction&) = delete;

    /// previous, dnormed and dprevious are this rank's share; dprevious is added to.
    void run(const nn::micro_batch<double>& batch, const drawn<double>& all, const std::vector<std::int32_t>& ids,
             const_stream previous, stream dnormed, stream dprevious) {
        const integer own = layer.over.share(vocab_size);
        const auto weights = table<const double>(all.view.rows_at(layer.over.rank * own, own));
        dtable.assign(static_cast<std::size_t>(weights.size()), 0.5);
        carved saved{[&](arena& memory) { return layer.keep(memory, batch.shape); }};
        carved deferred{[&](arena& memory) { return layer.defer(memory, batch.shape, false); }};
        carved work{[&](arena& memory) { return layer.work(memory, batch.shape); }};
        one_worker worker{layer.layer.scratch(batch.shape)};
        layer.forward(worker.queue, batch, parameters, router.buffers, weights, ids.data(), previous, 1, *saved, *work);
        work.poison();
        normed.assign(saved->normed.data, saved->normed.data + saved->normed.size());
        layer.backward(worker.queue, batch, parameters, router.buffers, ids.data(), dnormed, 1, *saved, *deferred,
                       *work, dprevious, table<double>({dtable.data(), own, hidden_size}), gradients);
    }
};

/// Which rows of two whole sequences a rank has: of its places of them, its share of the tokens.
std::vector<integer> rows_of(const nn::context_share& places, nn::split_over tensor, bool all_tokens = false) {
    std::vector<integer> rows;
    for (integer q = 0; q < 2; ++q)
        for (const int which : {0, 1}) {
            const auto run = places.places(places.rank, which);
            for (integer i = 0; i < run.count; ++i) rows.push_back(q * places.length() + run.first + i);
        }
    if (all_tokens) return rows;
    const share_of mine{static_cast<integer>(rows.size()), tensor.ranks, tensor.rank};
    return {rows.begin() + mine.first, rows.begin() + mine.first + mine.count};
}
template <class E> std::vector<E> picked(const std::vector<E>& from, const std::vector<integer>& rows, integer width) {
    std::vector<E> to;
    for (const integer r : rows) to.insert(to.end(), from.begin() + r * width, from.begin() + (r + 1) * width);
    return to;
}
void put(const std::vector<double>& from, const std::vector<integer>& rows, std::vector<double>& to) {
    for (std::size_t i = 0; i < rows.size(); ++i)
        std::copy_n(from.begin() + static_cast<integer>(i) * hidden_size, hidden_size,
                    to.begin() + rows[i] * hidden_size);
}

/// The module of a depth of sequences of `length` places.
template <class Mine, class Whole>
void check_prediction(integer ranks, integer context, integer length, integer depth, const nn::recomputation& again) {
    const integer longer = length - depth + 1;
    small_batch<double> batch{small_rope, 0.1, length - depth};
    const drawn<double> weights{vocab_size, hidden_size, 3, 0.5}, previous{2 * longer, hidden_size, 4};
    const drawn<double> dnormed{batch.shape.tokens(), hidden_size, 5}, before{2 * longer, hidden_size, 6};
    const auto ids = drawn_ids(batch.shape.tokens(), 1);
    const auto view_of = [](std::vector<double>& numbers) {
        return matrix<double>{numbers.data(), static_cast<integer>(numbers.size()) / hidden_size, hidden_size};
    };
    auto block = small_block<Whole>({});
    block.of.self_attn.num_attention_heads = 4;
    prediction<Whole> expected{{block, vocab_size, {}}};
    auto slope = dnormed.numbers, expected_dprevious = before.numbers;
    expected.run(batch.view, weights, ids, const_stream{previous.view}, stream{view_of(slope)},
                 stream{view_of(expected_dprevious)});

    block.again = again;
    std::vector<std::unique_ptr<prediction<Mine>>> found;
    for (integer r = 0; r < ranks * context; ++r) {
        const nn::split_over over{ranks, r % ranks};
        found.push_back(std::make_unique<prediction<Mine>>(nn::multi_token_prediction<double, Mine>{
            split_block<Mine>(block, over, {context, r / ranks}), vocab_size, over}));
        take_slices(expected.layer, expected.numbers, found.back()->layer, found.back()->numbers);
    }
    std::vector<double> normed(dnormed.numbers.size()), dprevious(before.numbers.size());
    std::vector<double> balance(found.size());
    on_ranks(ranks, context, [&](const comm::mesh_links& links) {
        auto& mine = *found[static_cast<std::size_t>(links.world.rank())];
        const nn::context_share places{context, links.at.cp, length, depth};
        nn::context_share places_before = places;
        places_before.missing -= 1;
        const auto rows = rows_of(places, mine.layer.over, true), share = rows_of(places, mine.layer.over);
        const auto share_before = rows_of(places_before, mine.layer.over);
        const auto positions = picked(batch.positions, rows, 1), starts = picked(batch.starts, rows, 1);
        auto view = batch.view;
        view.shape = {2, places.count(places.rank), places.longest()};
        view.positions = positions.data();
        view.starts = starts.data();
        view.ranks = &links;
        view.context = places;
        view.balance_loss = &balance[static_cast<std::size_t>(links.world.rank())];
        auto own = picked(dnormed.numbers, share, hidden_size),
             hidden = picked(previous.numbers, share_before, hidden_size),
             added = picked(before.numbers, share_before, hidden_size);
        mine.run(view, weights, picked(ids, rows, 1), const_stream{view_of(hidden)}, stream{view_of(own)},
                 stream{view_of(added)});
        put(mine.normed, share, normed);
        put(added, share_before, dprevious);
    });
    std::vector<double> dtable(weights.numbers.size(), 0.5);
    parameter_numbers<double> sum;
    typename nn::multi_token_prediction<double, Whole>::template parameters<double> views{};
    sum.bind(expected.layer, views, 0, 0);
    for (const auto& mine : found) {
        const auto first = static_cast<std::size_t>(mine->layer.over.rank) * mine->dtable.size();
        for (std::size_t i = 0; i < mine->dtable.size(); ++i) dtable[first + i] += mine->dtable[i] - 0.5;
        add_slices(expected.layer, sum, mine->layer, mine->slopes);
    }
    CHECK(apart(normed, expected.normed) < 1e-10);
    CHECK(apart(dtable, expected.dtable) < 1e-10);
    CHECK(apart(dprevious, expected_dprevious) < 1e-10);
    CHECK(apart(sum, expected.slopes) < 1e-10);
    const double loss = std::accumulate(balance.begin(), balance.end(), 0.0);
    CHECK(loss == doctest::Approx(batch.balance_loss).epsilon(1e-12));
}

}  // namespace

TEST_CASE("tensor ranks: a module of multi-token prediction") {
    for (const integer ranks : rank_numbers)
        for (const integer length : lengths)
            for (const auto& again : {nn::recomputation{}, nn::recomputation{.norms = true, .blocks = true}}) {
                INFO("ranks ", ranks, ", length ", length, ", recomputed ", again.blocks);
                check_prediction<split_latent_dense, latent_dense>(ranks, 1, length + 1, 1, again);
                check_prediction<split_latent_experts, latent_experts>(ranks, 1, length + 1, 1, again);
            }
}
// A chunk is two places: depth 1 takes one of rank 0's late chunk, 2 the other, 3 one of rank 1's, 5 one of its early
// chunk.
TEST_CASE("tensor ranks: modules of multi-token prediction whose sequences context ranks share") {
    for (const integer ranks : rank_numbers)
        for (const integer depth : {1, 2, 3, 5}) {
            INFO("ranks ", ranks, ", depth ", depth);
            check_prediction<split_grouped_query_dense, grouped_query_dense>(ranks, 2, 8, depth, {});
            check_prediction<split_latent_experts, latent_experts>(ranks, 2, 8, depth, {.norms = true});
        }
}

}  // namespace fathom::test
