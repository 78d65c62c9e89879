// Twenty steps of training beside the reference implementation: loss and gradient norm of every step, and the weights
// at the end.
#include "described_models.hpp"
#include "reference_models.hpp"
#include "stored_tensors.hpp"

namespace fathom::parity_test {

/// Step s takes tokens[s % 4], labels = tokens, AdamW that decays everything, a rate of 1e-3, clipping at 1. Errors do
/// not build up over the steps: in double they stay below 1e-12, in float below 1e-4.
template <class T> void follow(const std::string& name, const models::model_config& config, double bound) {
    const safetensors::file seen{parity::path("oracle/" + name + "/trajectory.safetensors")};
    const auto& shape = seen.at("tokens").shape;
    const integer sequences = shape[1], length = shape[2];
    const auto tokens = parity::integers(seen, "tokens");
    const auto targets = parity::shifted(tokens, length);
    const auto losses = parity::numbers(seen, "loss"), norms = parity::numbers(seen, "grad_norm");

    const auto model = run_model<T>(config, {.batch = {sequences, length}, .adamw = {.group = optim::decay::all}});
    model->load(parity::path("oracle/" + name));
    REQUIRE(losses.size() == 20);
    for (std::size_t s = 0; s < losses.size(); ++s) {
        const std::size_t at = s % 4 * static_cast<std::size_t>(sequences * length);
        const auto result = model->step({sequences, length, tokens.data() + at, targets.data() + at},
                                        {.learning_rate = 1e-3, .clip = 1, .balance_alpha = 0, .bias_update_speed = 0});
        INFO("step ", s, ": loss ", result.loss, " (", losses[s], "), norm ", result.gradient_norm, " (", norms[s],
             ")");
        CHECK(std::abs(result.loss / losses[s] - 1) <= bound);
        CHECK(std::abs(result.gradient_norm / norms[s] - 1) <= bound);
    }
    check_tensors<T>(seen, "final.", model->weights(), bound);
}

}  // namespace fathom::parity_test

#define TRAJECTORY(name)                                                             \
    TEST_CASE("trajectory " #name) {                                                 \
        fathom::parity_test::follow<double>(#name, described::name::config(), 1e-9); \
        fathom::parity_test::follow<float>(#name, described::name::config(), 2e-4);  \
    }

TRAJECTORY(v3_plain_traj)
TRAJECTORY(v3_yarn_traj)
TRAJECTORY(v2_group_limited_traj)
TRAJECTORY(llama_gqa_traj)
