// What a router does, as numbers: the families differ in these facts and in nothing else.
#pragma once

#include <fathom/core/bytes.hpp>

namespace fathom::ops {

/// How DeepSeek's routers choose `top_k` of `experts` for a token and weigh them.
struct router_facts {
    /// How logits become scores: over all experts together, or each on its own.
    enum class score_kind : unsigned char { softmax, sigmoid };
    /// What ranks a group of experts: its best expert (V2) or the sum of its two best (V3).
    enum class group_kind : unsigned char { maximum, best_two };

    integer experts = 0;
    integer top_k = 0;
    integer groups = 1;      // experts lie in this many groups of the same size
    integer topk_group = 1;  // a token may use the experts of this many groups
    score_kind score = score_kind::softmax;
    group_kind group_score = group_kind::maximum;
    bool normalise = false;  // weights sum to scaling_factor
    double scaling_factor = 1;
    bool bias = false;  // a bias takes part in the choice, never in the weights

    /// Whether every token can get its experts.
    [[nodiscard]] constexpr bool consistent() const {
        if (experts <= 0 || groups <= 0 || experts % groups != 0 || topk_group <= 0 || topk_group > groups)
            return false;
        if (group_score == group_kind::best_two && groups > 1 && experts / groups < 2) return false;
        return top_k > 0 && top_k <= topk_group * (experts / groups);
    }
};

}  // namespace fathom::ops
