// Whatever the layout, the numbers are those of one rank: losses, gradients, norms and weights of every combination of
// degrees that a small model admits on up to eight ranks.
#include <cstdlib>

#include "layout_runs.hpp"

namespace fathom::test {
namespace {

using runs = layout_runs<models::latent_family, double>;

std::vector<degrees> all_degrees() {
    std::vector<degrees> all;
    const integer sizes[] = {1, 2, 4, 8};
    for (const integer dp : sizes)
        for (const integer pp : {1, 2, 4})
            for (const integer tp : sizes)
                for (const integer cp : sizes)
                    for (const integer ep : sizes)
                        for (const integer etp : {1, 2}) {
                            const degrees d{.dp = dp, .pp = pp, .tp = tp, .cp = cp, .ep = ep, .etp = etp};
                            if (d.ranks() <= 8 && d.split() && d.stage_ranks() % (ep * etp) == 0) all.push_back(d);
                        }
    return all;
}

}  // namespace

TEST_CASE("layouts: every combination of degrees gives one rank's numbers") {
    run_factors factors;
    const history expected = runs::alone(factors);
    const char* only = std::getenv("FATHOM_ONLY");
    integer count = 0;
    for (const degrees& d : all_degrees()) {
        const train::layout_facts layout{.mesh = d,
                                         .layers = stages_for(d.pp, factors.config),
                                         .micro_batches = factors.sequences / d.dp / runs::shape.sequences};
        const std::string text = text_of_layout(layout);
        if (only != nullptr && text.find(only) == std::string::npos) continue;
        CAPTURE(text);
        for (const auto exchange : {nn::context_exchange::all_gather, nn::context_exchange::ring}) {
            if (exchange == nn::context_exchange::ring && d.cp == 1) continue;
            const bool in_a_ring = exchange == nn::context_exchange::ring;
            CAPTURE(in_a_ring);
            factors.choices.exchange = exchange;
            compare(runs::on(layout, factors), expected, true);
            ++count;
        }
    }
    MESSAGE(count, " layouts");
    if (only == nullptr) CHECK(count >= 60);
}

}  // namespace fathom::test
