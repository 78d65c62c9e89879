// What ranks that split a model trained and exported, one rank loads, and it writes the texts of a one-rank run's
// export.
#include <fathom/train/generate.hpp>

#include <string>
#include <vector>

#include "../unit/scratch_folder.hpp"
#include "engines.hpp"
#include "layout_runs.hpp"

namespace fathom::test {
namespace {

using runs = layout_runs<models::latent_family, double>;
using texts = std::vector<std::vector<std::int32_t>>;

/// Takes some steps with this rank's part of each batch, and exports from all ranks.
template <class Engine> void train_and_export(Engine& engine, const run_factors& f, const std::string& directory) {
    engine.initialise(1);
    const integer each = f.sequences / engine.links().of.dp, first = engine.links().at.dp * each;
    for (integer step = 0; step < f.steps; ++step)
        engine.step(layout_batch{f, static_cast<std::uint64_t>(step)}.part(first, each),
                    {.learning_rate = 1e-2, .bias_update_speed = 0.01});
    train::save_pretrained(engine, f.config, "", directory);
}
void train_on_one(const run_factors& f, const std::string& directory) {
    const auto model = models::latent_family::transformer<double>(f.config);
    runs::whole_engine engine{model, {.batch = runs::shape, .workers = 1}, 0, optim::adamw_facts{}};
    train_and_export(engine, f, directory);
}
void train_on(const train::layout_facts& layout, const run_factors& f, const std::string& directory) {
    comm::threads::run(layout.mesh.ranks(), [&](auto& ranks) {
        const auto model = models::latent_family::transformer<double, true>(f.config);
        runs::split_engine engine{
            model, {.batch = runs::shape, .workers = 1}, 0, optim::adamw_facts{}, comm::link{ranks}, layout};
        train_and_export(engine, f, directory);
    });
}

/// Of two prompts: the most likely texts, then drawn ones.
texts texts_of(const std::string& directory, const models::model_config& config) {
    const auto model = models::latent_family::transformer<double>(config);
    runs::whole_engine engine{
        model, {.batch = {1, layout_length}, .workers = 1, .trains = false}, 0, optim::adamw_facts{}};
    train::load_pretrained(engine, directory);
    train::generator writer{engine, 2, config.max_position_embeddings};
    const texts prompts{{1, 2, 3}, {30}};
    texts all = writer.generate(prompts, {.how = {.temperature = 0}});
    for (const auto& drawn : writer.generate(prompts, {.how = {.temperature = 1, .top_p = 0.95, .seed = 3}}))
        all.push_back(drawn);
    return all;
}

}  // namespace

TEST_CASE("generation from what ranks that split a model exported: the texts of one rank's export") {
    const scratch_folder folder;
    run_factors f;
    f.steps = 3;
    train_on_one(f, folder / "one");
    const texts expected = texts_of(folder / "one", f.config);
    for (const auto& text : expected) CHECK(text.size() >= 29);
    CHECK(expected[0] != expected[2]);  // greedy and drawn
    // Texts tell weights that moved from others.
    run_factors untrained = f;
    untrained.steps = 0;
    train_on_one(untrained, folder / "untrained");
    const texts before = texts_of(folder / "untrained", f.config);
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK(before[i] != expected[i]);

    const train::layout_facts layouts[] = {
        {.mesh = {.pp = 2, .tp = 2}, .layers = stages_for(2, f.config), .micro_batches = 8},
        {.mesh = {.dp = 2, .ep = 2}, .micro_batches = 4},
        {.mesh = {.dp = 2, .tp = 2, .ep = 4}, .zero = 3, .micro_batches = 4}};
    for (const auto& layout : layouts) {
        CAPTURE(text_of_layout(layout));
        train_on(layout, f, folder / "split");
        CHECK(texts_of(folder / "split", f.config) == expected);
    }
}

}  // namespace fathom::test
