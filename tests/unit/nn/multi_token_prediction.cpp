// A module of multi-token prediction: its gradients are slopes, and what it adds to is added to.
#include <fathom/nn/multi_token_prediction.hpp>

#include "small_block.hpp"

namespace fathom::test {

namespace {

using module = nn::multi_token_prediction<double, latent_experts>;

constexpr integer vocab_size = 9, hidden_size = 16;
constexpr nn::extents shape{2, 5};  // a depth's sequences are one token shorter than those before it

void check_module(const nn::recomputation& again) {
    const module layer{small_block<latent_experts>(again)};
    two_workers workers{layer.layer.scratch(shape)};
    small_batch<double> batch{small_rope, 0.1, shape.length};
    block_state<latent_experts> router{layer.layer, 0};  // for the numbers of its router
    module::parameters<double> parameters{}, gradients{};
    parameter_numbers<double> numbers, slopes;
    numbers.bind(layer, parameters, 0.3, 30);
    slopes.bind(layer, gradients, 0, 0);
    drawn<double> embedding{vocab_size, hidden_size, 31}, previous{2 * (shape.length + 1), hidden_size, 32};
    drawn<double> dnormed{shape.tokens(), hidden_size, 33};
    drawn<double> dembedding{vocab_size, hidden_size, 34}, dprevious{2 * (shape.length + 1), hidden_size, 35};
    const auto before_embedding = dembedding.numbers, before_previous = dprevious.numbers, dy = dnormed.numbers;
    const std::vector<std::int32_t> ids{1, 2, 3, 1, 8, 0, 4, 4, 7, 2};

    carved saved{[&](arena& memory) { return layer.keep(memory, shape); }};
    carved deferred{[&](arena& memory) { return layer.defer(memory, shape, false); }};
    carved work{[&](arena& memory) { return layer.work(memory, shape); }};
    const auto loss = [&] {
        batch.balance_loss = 0;
        layer.forward(workers.queue, batch.view, parameters, router.buffers,
                      tensor<const double, axis::vocabulary, axis::hidden>{embedding.view}, ids.data(),
                      tensor<const double, axis::tokens, axis::hidden>{previous.view}, 1, *saved, *work);
        double sum = batch.balance_loss;
        for (std::size_t i = 0; i < dy.size(); ++i) sum += dy[i] * saved->normed.data[i];
        return sum;
    };
    loss();
    work.poison();
    layer.backward(workers.queue, batch.view, parameters, router.buffers, ids.data(), module::stream{dnormed.view}, 1,
                   *saved, *deferred, *work, module::stream{dprevious.view},
                   tensor<double, axis::vocabulary, axis::hidden>{dembedding.view}, gradients);
    const auto added = [](std::vector<double> after, const std::vector<double>& before) {
        for (std::size_t i = 0; i < after.size(); ++i) after[i] -= before[i];
        return after;
    };
    check_slopes("embedding", embedding.numbers, added(dembedding.numbers, before_embedding).data(), loss, 144);
    check_slopes("previous", previous.numbers, added(dprevious.numbers, before_previous).data(), loss, 192);
    // The last token of each longer sequence has no successor to predict from.
    for (integer c = 0; c < hidden_size; ++c)
        CHECK(dprevious.view(shape.length, c) ==
              before_previous[static_cast<std::size_t>(shape.length * hidden_size + c)]);
    for (std::size_t p = 0; p < numbers.all.size(); ++p)
        check_slopes(numbers.all[p]->name, numbers.all[p]->numbers, slopes.all[p]->numbers.data(), loss);
}

}  // namespace

TEST_CASE("multi-token prediction: gradients are slopes") { check_module({}); }
TEST_CASE("multi-token prediction: gradients are slopes when the block is recomputed") {
    check_module({.norms = true, .swiglu = true, .blocks = true});
}

}  // namespace fathom::test
