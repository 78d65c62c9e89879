// The engines behind running_model: a source for each number format compiles them.
#pragma once

#include <algorithm>
#include <fathom/models/families.hpp>
#include <tuple>

#include "reference_models.hpp"

namespace fathom::parity_test {

template <class Transformer> class running final : public running_model<typename Transformer::number> {
    using T = typename Transformer::number;
    using A = typename Transformer::A;
    using view = train::parameter_view<T, A>;
    using typename running_model<T>::tensors;

  public:
    running(const Transformer& model, const setup& how)
        : plan_(planning::lower(model, shape(how))), engine_(model, shape(how), plan_.bytes, how.adamw) {}

    const planning::plan& plan() const override { return plan_; }
    void load(const std::string& directory) override { train::load_pretrained(engine_, directory); }
    void initialise(std::uint64_t seed) override { engine_.initialise(seed); }
    train::step_result accumulate(const train::batch_view& b, const train::step_settings& s) override {
        return engine_.accumulate(b, s);
    }
    train::step_result step(const train::batch_view& b, const train::step_settings& s) override {
        return engine_.step(b, s);
    }
    train::step_result evaluate(const train::batch_view& b, const train::step_settings& s) override {
        return engine_.evaluate(b, s);
    }
    tensors gradients() override { return train::named_state(engine_, &view::gradient); }
    tensors weights() override {
        tensors all = train::named_state(engine_, &view::master);
        for (auto& bias : train::named_router_biases(engine_)) all.push_back(bias);
        return all;
    }
    std::vector<std::vector<integer>> loads() override {
        std::vector<std::vector<integer>> all;
        const auto add = [&all](const auto& buffers) {
            if constexpr (requires { buffers.load; })
                all.emplace_back(buffers.load.data, buffers.load.data + buffers.load.size());
        };
        std::apply([&](const auto&... kind) { (std::for_each(kind.begin(), kind.end(), add), ...); },
                   engine_.memory().buffers.blocks);
        for (const auto& module : engine_.memory().buffers.mtp) add(module);
        return all;
    }
    matrix<T> normed(int depth) override {
        const auto& saved = engine_.memory().saved;
        return depth == 0 ? saved.normed : saved.mtp[static_cast<std::size_t>(depth - 1)].normed;
    }

  private:
    static planning::rank_shape shape(const setup& how) { return {.batch = how.batch, .workers = how.workers}; }

    planning::plan plan_;
    train::engine<Transformer> engine_;
};

template <class T> std::unique_ptr<running_model<T>> run_model(const models::model_config& config, const setup& how) {
    const auto run = [&]<class Transformer>(const Transformer& model) -> std::unique_ptr<running_model<T>> {
        return std::make_unique<running<Transformer>>(model, how);
    };
    if (config.type == models::family::llama)
        return run(models::grouped_query_family::transformer<T>(config, how.again));
    return run(models::latent_family::transformer<T>(config, how.again));
}

}  // namespace fathom::parity_test
