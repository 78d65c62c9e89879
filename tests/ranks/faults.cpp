// Faults that systems for many ranks have had, where the other tests have no eye for them: parameters of which tensor
// ranks split a part and share the rest.
#include "layout_runs.hpp"

namespace fathom::test {
namespace {

using latent_runs = layout_runs<models::latent_family, double>;
using grouped_runs = layout_runs<models::grouped_query_experts_family, double>;

template <class Runs>
void check_layouts(const run_factors& factors, const std::vector<degrees>& meshes, const std::vector<integer>& zeros) {
    const history expected = Runs::alone(factors);
    for (const degrees& d : meshes)
        for (const integer zero : zeros) {
            if (zero > 0 && d.dp * d.cp == 1) continue;
            const train::layout_facts layout{.mesh = d,
                                             .zero = zero,
                                             .layers = stages_for(d.pp, factors.config),
                                             .micro_batches = factors.sequences / d.dp / Runs::shape.sequences};
            const std::string text = text_of_layout(layout);
            CAPTURE(text);
            compare(Runs::on(layout, factors), expected, zero == 0);
        }
}
run_factors grouped(integer kv_heads) {
    run_factors f;
    f.config.type = models::family::deepseek_moe;
    f.config.hidden_size = 32, f.config.num_key_value_heads = kv_heads;
    f.config.routed_scaling_factor = 1, f.config.norm_topk_prob = false;
    f.config.attention_bias = true;
    f.steps = 3;
    return f;
}
const std::vector<degrees> tensor_meshes{{.tp = 2},          {.tp = 4},          {.dp = 2, .tp = 4},
                                         {.tp = 4, .cp = 2}, {.pp = 2, .tp = 4}, {.dp = 2, .tp = 2, .cp = 2}};

}  // namespace

TEST_CASE("faults: queries without a latent, which share a product with what tensor ranks do not split") {
    run_factors f;
    f.config.q_lora_rank = 0;
    f.config.attention_bias = true;
    f.steps = 3;
    check_layouts<latent_runs>(f, tensor_meshes, {0, 1, 2, 3});
}
TEST_CASE("faults: a key-value head that two tensor ranks, or all, share") {
    check_layouts<grouped_runs>(grouped(2), tensor_meshes, {0, 1, 2, 3});
    check_layouts<grouped_runs>(grouped(1), {{.tp = 2}, {.dp = 2, .tp = 4}, {.tp = 8}}, {0, 1});
}
TEST_CASE("faults: a key-value head a query head, and fewer tensor ranks than these") {
    check_layouts<grouped_runs>(grouped(8), {{.tp = 2}, {.dp = 2, .tp = 4}}, {0, 1});
}
TEST_CASE("faults: keys and values of grouped queries that go round a ring") {
    run_factors f = grouped(2);
    f.choices.exchange = nn::context_exchange::ring;
    check_layouts<grouped_runs>(
        f, {{.cp = 2}, {.cp = 4}, {.tp = 2, .cp = 2}, {.pp = 2, .cp = 4}, {.dp = 2, .cp = 2, .ep = 2}}, {0, 3});
}

}  // namespace fathom::test
