// How much of a model's work falls to one stage of its pipeline.
#pragma once

#include <fathom/models/transformer.hpp>

namespace fathom::cost {

/// Model FLOPs of one micro-batch in a stage, forward and backward, of all ranks that share the stage and the
/// micro-batch: those of transformer::flops that are the stage's. `whole` is the whole model.
template <class Transformer>
constexpr double flops_of_stage(const Transformer& whole, const models::stage& stage, nn::extents batch) {
    const models::held_stages held{.each = {stage}};
    double parameters = 0, pairs = 0;
    const auto add = [&](const auto& layer, integer count) {
        parameters += static_cast<double>(count * layer.matrix_parameters());
        pairs += static_cast<double>(count * layer.products_per_pair());
    };
    whole.each_segment([&](const auto& part, auto) { add(part.layer, held.part(0, part.first, part.count).count); });
    if (stage.head) {
        const integer depths = whole.of.num_nextn_predict_layers;
        parameters += static_cast<double>((1 + depths) * whole.of.vocab_size * whole.of.hidden_size);
        parameters += static_cast<double>(depths * whole.mtp().matrix_parameters());
        pairs += static_cast<double>(depths * whole.mtp().layer.products_per_pair());
    }
    return 6.0 * static_cast<double>(batch.tokens()) * (parameters + pairs * static_cast<double>(batch.length) / 2.0);
}

}  // namespace fathom::cost
