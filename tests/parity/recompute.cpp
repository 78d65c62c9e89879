// What is recomputed in backward changes memory and nothing else: gradients are the same bits.
#include <doctest/doctest.h>

#include "described_models.hpp"
#include "drawn_batch.hpp"
#include "oracle.hpp"
#include "reference_models.hpp"

namespace fathom::parity_test {

namespace {

struct option {
    const char* name;
    nn::recomputation again;
};
constexpr option options[] = {
    {"norms", {.norms = true}},
    {"up_projections", {.up_projections = true}},
    {"swiglu", {.swiglu = true}},
    {"blocks", {.blocks = true}},
    {"norms, up_projections, swiglu", {.norms = true, .up_projections = true, .swiglu = true}},
    {"all together", {.norms = true, .up_projections = true, .swiglu = true, .blocks = true}},
};

/// Loss, gradients and the loads of experts of a batch, cut in two micro-batches.
template <class T> struct outcome {
    double loss = 0;
    std::vector<accumulator_t<T>> gradients;
    std::vector<std::vector<integer>> loads;
    integer bytes = 0;

    outcome(const models::model_config& config, const std::string& weights, const nn::recomputation& again) {
        const auto model = run_model<T>(config, {.batch = {2, 16}, .again = again});
        model->load(parity::path(weights));
        const drawn_batch batch{4, 16, config.vocab_size, 5};
        loss = model->accumulate(batch.view(), {.balance_alpha = 0.05, .z_loss = 0.01}).loss;
        gradients = flattened(model->gradients());
        loads = model->loads();
        bytes = model->plan().bytes;
    }
};

template <class T> void check_options(const models::model_config& config, const std::string& weights) {
    const outcome<T> kept{config, weights, {}};
    for (const option& o : options) {
        INFO(o.name, " in ", number_name<T>);
        const outcome<T> recomputed{config, weights, o.again};
        CHECK(recomputed.loss == kept.loss);
        CHECK(same_bits(recomputed.gradients, kept.gradients));
        CHECK(recomputed.loads == kept.loads);
        CHECK(recomputed.bytes < kept.bytes);
    }
}

}  // namespace

TEST_CASE("recomputation in latent attention, experts and multi-token prediction") {
    check_options<double>(described::v3_all::config(), "reference/v3_all");
    check_options<float>(described::v3_all::config(), "reference/v3_all");
    check_options<bf16>(described::v3_all::config(), "reference/v3_all");
}

TEST_CASE("recomputation without a latent for queries, and with shared experts of several widths") {
    check_options<float>(described::v2lite_greedy::config(), "oracle/v2lite_greedy");
}

TEST_CASE("recomputation in grouped-query attention") {
    check_options<double>(described::llama_gqa::config(), "oracle/llama_gqa");
    check_options<float>(described::llama_gqa::config(), "oracle/llama_gqa");
}

}  // namespace fathom::parity_test
