// Models that run, behind calls that name no kinds of blocks: each kind is compiled once for all parity tests.
#pragma once

#include <fathom/models/config.hpp>
#include <fathom/train/pretrained.hpp>
#include <memory>
#include <string>
#include <vector>

namespace fathom::parity_test {

/// How a model is run.
struct setup {
    nn::extents batch;  // the most that a micro-batch holds
    integer workers = 2;
    nn::recomputation again{};
    optim::adamw_facts adamw{};
};

/// An engine over T with sums in A.
template <class T> class running_model {
  public:
    using A = accumulator_t<T>;
    using tensors = std::vector<train::named_numbers<A>>;

    running_model() = default;
    running_model(const running_model&) = delete;
    running_model& operator=(const running_model&) = delete;
    virtual ~running_model() = default;

    virtual const planning::plan& plan() const = 0;
    virtual void load(const std::string& directory) = 0;
    virtual void initialise(std::uint64_t seed) = 0;
    virtual train::step_result accumulate(const train::batch_view&, const train::step_settings&) = 0;
    virtual train::step_result step(const train::batch_view&, const train::step_settings&) = 0;
    virtual train::step_result evaluate(const train::batch_view&, const train::step_settings&) = 0;
    virtual tensors gradients() = 0;
    virtual tensors weights() = 0;                          // as the optimizer keeps them, router biases last
    virtual std::vector<std::vector<integer>> loads() = 0;  // of every router, in order
    virtual matrix<T> normed(int depth) = 0;                // what the head reads for a depth of prediction
};

/// Latent attention with dense layers and experts, or Llama's dense layers. For double, float and bf16.
template <class T> std::unique_ptr<running_model<T>> run_model(const models::model_config& config, const setup& how);

}  // namespace fathom::parity_test
