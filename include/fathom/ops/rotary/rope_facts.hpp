// The settings of a rotary position embedding and what follows from them, in double: float angles are off by 1e-4
// within a few thousand positions.
#pragma once

#include <cmath>
#include <fathom/core/bytes.hpp>
#include <fathom/core/error.hpp>
#include <numbers>

namespace fathom::ops {

/// Rotary position embedding (Su et al. 2021), with linear scaling of positions or YaRN (Peng et al. 2023). The names
/// are those of `rope_parameters` in a Hugging Face config.json; `dim` is the width that turns, in pairs.
struct rope_facts {
    enum class scaling : unsigned char { none, linear, yarn };

    double theta = 1e4;
    integer dim = 0;
    scaling kind = scaling::none;
    double factor = 1;
    integer original_max_position_embeddings = 0;
    double beta_fast = 32;
    double beta_slow = 1;
    double mscale = 0;
    double mscale_all_dim = 0;
    bool interleaved = true;  // pairs (2i, 2i+1); otherwise (i, i + dim/2)
};

/// Fails unless the facts describe a rotation. Errors: an odd or negative width, a theta of at most 1, a factor that is
/// not positive, YaRN without an original length.
inline void check(const rope_facts& facts) {
    if (facts.dim < 0 || facts.dim % 2 != 0) fail("rope: found a width of ", facts.dim, ", expected an even number");
    if (!(facts.theta > 1)) fail("rope: found a theta of ", facts.theta, ", expected a number above 1");
    if (facts.kind != rope_facts::scaling::none && !(facts.factor > 0))
        fail("rope: found a factor of ", facts.factor, ", expected a positive number");
    if (facts.kind == rope_facts::scaling::yarn && facts.original_max_position_embeddings < 1)
        fail("rope: found original_max_position_embeddings of ", facts.original_max_position_embeddings,
             ", expected the length before YaRN");
}

/// Radians a position by which pair `pair` turns: theta^(-2 pair / dim), over `factor` for linear scaling. YaRN keeps
/// pairs that turn more than beta_fast times within the original length, divides those below beta_slow turns by
/// `factor`, and goes over linearly in between.
inline double inverse_frequency(const rope_facts& facts, integer pair) {
    const auto width = static_cast<double>(facts.dim);
    const double plain = 1 / std::pow(facts.theta, static_cast<double>(2 * pair) / width);
    if (facts.kind == rope_facts::scaling::none) return plain;
    if (facts.kind == rope_facts::scaling::linear) return plain / facts.factor;
    const auto pair_that_turns = [&](double turns) {
        return width *
               std::log(static_cast<double>(facts.original_max_position_embeddings) / (turns * 2 * std::numbers::pi)) /
               (2 * std::log(facts.theta));
    };
    const double low = std::fmax(std::floor(pair_that_turns(facts.beta_fast)), 0);
    double high = std::fmin(std::ceil(pair_that_turns(facts.beta_slow)), width - 1);
    if (high == low) high += 0.001;
    const double ramp = std::fmin(std::fmax((static_cast<double>(pair) - low) / (high - low), 0), 1);
    return plain / facts.factor * ramp + plain * (1 - ramp);
}

/// YaRN's growth of attention's magnitude with the factor.
inline double yarn_magnitude(double factor, double mscale) {
    return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

/// What cosines and sines are multiplied by: 1 but for YaRN.
inline double attention_factor(const rope_facts& facts) {
    if (facts.kind != rope_facts::scaling::yarn) return 1;
    if (facts.mscale == 0 || facts.mscale_all_dim == 0) return yarn_magnitude(facts.factor, 1);
    return yarn_magnitude(facts.factor, facts.mscale) / yarn_magnitude(facts.factor, facts.mscale_all_dim);
}

/// What scores are multiplied by: qk_head_dim^-1/2, and for scaled positions with mscale_all_dim times the square of
/// its magnitude (DeepSeek-V2, V3).
inline double softmax_scale(const rope_facts& facts, integer qk_head_dim) {
    const double plain = 1 / std::sqrt(static_cast<double>(qk_head_dim));
    if (facts.kind == rope_facts::scaling::none || facts.mscale_all_dim == 0) return plain;
    const double magnitude = yarn_magnitude(facts.factor, facts.mscale_all_dim);
    return plain * magnitude * magnitude;
}

}  // namespace fathom::ops
