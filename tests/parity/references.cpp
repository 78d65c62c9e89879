// What the reference implementation does not compute, beside the NumPy model of tests/reference: balance loss, z-loss,
// two depths of multi-token prediction, the update of routers' biases.
#include <fathom/ops/router.hpp>

#include "described_models.hpp"
#include "reference_models.hpp"
#include "stored_tensors.hpp"

namespace fathom::parity_test {

namespace {

constexpr double balance_alpha = 0.05, z_loss = 0.01, bias_update_speed = 0.02;  // as in the cases' config.json

template <class T> std::span<const T> all(const matrix<T>& m) { return {m.data, static_cast<std::size_t>(m.size())}; }

/// A term that the case leaves out is exactly zero.
void check_term(const safetensors::file& io, const std::string& name, std::size_t at, double found, double bound) {
    const double expected = io.find(name) != nullptr ? parity::numbers(io, name)[at] : 0;
    INFO(name, ": found ", found, ", expected ", expected);
    CHECK(std::abs(found - expected) <= bound * std::abs(expected));
}
void check_terms(const safetensors::file& io, std::size_t at, const train::step_result& r, double bound) {
    check_term(io, "loss", at, r.loss, bound);
    check_term(io, "main_loss", at, r.cross_entropy, bound);
    check_term(io, "z_loss", at, r.z_loss, bound);
    check_term(io, "mtp_loss", at, r.mtp_loss, bound);
    check_term(io, "balance_loss", at, r.balance_loss, bound);
}

template <class T>
void check_case(const std::string& name, const models::model_config& config, const train::step_settings& settings,
                double bound) {
    const safetensors::file io{parity::path("reference/" + name + "/io.safetensors")};
    const integer sequences = io.at("input_ids").shape[0], length = io.at("input_ids").shape[1];
    const auto tokens = parity::integers(io, "input_ids");
    const auto targets = parity::shifted(parity::integers(io, "labels"), length);
    const auto model = run_model<T>(config, {.batch = {sequences, length}});
    model->load(parity::path("reference/" + name));
    check_terms(io, 0, model->accumulate({sequences, length, tokens.data(), targets.data()}, settings), bound);
    check_tensors<T>(io, "grad.", model->gradients(), bound);

    CHECK(parity::distance<T>(all(model->normed(0)), parity::numbers(io, "hidden.final_norm")) <= bound);
    for (int k = 1; k <= config.num_nextn_predict_layers; ++k)
        CHECK(parity::distance<T>(all(model->normed(k)), parity::numbers(io, text_of("mtp.depth", k, ".hidden"))) <=
              bound);
    integer layer = config.first_k_dense_replace;
    for (const auto& load : model->loads()) {
        const auto expected = parity::integers(io, text_of("router.layer", layer++, ".load"));
        CHECK(std::equal(load.begin(), load.end(), expected.begin(), expected.end()));
    }
    CHECK(layer == config.num_hidden_layers + config.num_nextn_predict_layers);
}

template <class T> void check_trajectory(double step_bound, double end_bound) {
    const safetensors::file seen{parity::path("reference/v3_all_trajectory/trajectory.safetensors")};
    const auto& shape = seen.at("tokens").shape;
    const integer sequences = shape[1], length = shape[2];
    const auto tokens = parity::integers(seen, "tokens");
    const auto targets = parity::shifted(tokens, length);
    const auto rates = parity::numbers(seen, "learning_rate");
    const auto model = run_model<T>(described::v3_all_trajectory::config(), {.batch = {sequences, length}});
    model->load(parity::path("reference/v3_all_trajectory"));
    for (std::size_t s = 0; s < rates.size(); ++s) {
        const std::size_t at = s % 4 * static_cast<std::size_t>(sequences * length);
        const auto result = model->step({sequences, length, tokens.data() + at, targets.data() + at},
                                        {.learning_rate = rates[s],
                                         .balance_alpha = balance_alpha,
                                         .z_loss = z_loss,
                                         .bias_update_speed = bias_update_speed});
        INFO("step ", s);
        check_terms(seen, s, result, step_bound);
        check_term(seen, "grad_norm", s, result.gradient_norm, step_bound);
    }
    check_tensors<T>(seen, "final.", model->weights(), end_bound);
}

template <class A> void check_bias_update(double bound) {
    const safetensors::file io{parity::path("reference/bias_update/io.safetensors")};
    const auto before = parity::numbers(io, "before"), after = parity::numbers(io, "after");
    const auto loads = parity::integers(io, "load");
    const std::size_t experts = before.size();
    std::vector<A> bias(before.begin(), before.end());
    host::workers pool{1};
    host::queue queue{pool, nullptr, 0};
    for (std::size_t update = 0; update * experts < loads.size(); ++update) {
        const auto start = static_cast<std::ptrdiff_t>(update * experts),
                   end = static_cast<std::ptrdiff_t>((update + 1) * experts);
        const std::vector<integer> load(loads.begin() + start, loads.begin() + end);
        ops::bias_update(queue, bias.data(), load.data(), static_cast<integer>(experts),
                         parity::numbers(io, "gamma")[0]);
        CHECK(parity::distance<A>(bias, {after.begin() + start, after.begin() + end}) <= bound);
    }
}

}  // namespace

TEST_CASE("reference v3_balance: the sequence-wise balance loss") {
    const train::step_settings settings{.balance_alpha = balance_alpha};
    check_case<double>("v3_balance", described::v3_balance::config(), settings, 1e-9);
    check_case<float>("v3_balance", described::v3_balance::config(), settings, 2e-4);
}

TEST_CASE("reference v3_z_loss: the z-loss") {
    const train::step_settings settings{.balance_alpha = 0, .z_loss = z_loss};
    check_case<double>("v3_z_loss", described::v3_z_loss::config(), settings, 1e-9);
    check_case<float>("v3_z_loss", described::v3_z_loss::config(), settings, 2e-4);
}

TEST_CASE("reference v3_mtp2: two depths of multi-token prediction") {
    const train::step_settings settings{.balance_alpha = 0};
    check_case<double>("v3_mtp2", described::v3_mtp2::config(), settings, 1e-9);
    check_case<float>("v3_mtp2", described::v3_mtp2::config(), settings, 2e-4);
}

TEST_CASE("reference v3_all: all three at once") {
    const train::step_settings settings{.balance_alpha = balance_alpha, .z_loss = z_loss};
    check_case<double>("v3_all", described::v3_all::config(), settings, 1e-9);
    check_case<float>("v3_all", described::v3_all::config(), settings, 2e-4);
}

TEST_CASE("reference v3_all_trajectory: twelve steps with a rate each, and the update of routers' biases") {
    check_trajectory<double>(1e-9, 1e-9);
    check_trajectory<float>(2e-4, 2e-4);
}

TEST_CASE("reference bias_update: four updates of one bias") {
    check_bias_update<double>(1e-14);
    check_bias_update<float>(1e-6);
}

}  // namespace fathom::parity_test
