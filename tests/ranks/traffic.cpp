// What a step hands to operations between ranks is what the plan says: every byte, by the ranks that it is between and
// by kind.
#include <fathom/cost/traffic_of.hpp>
#include <memory>

#include "layout_runs.hpp"

namespace fathom::test {
namespace {

/// The recorders of a rank's communicators, each under the link of the mesh that it is, or was split off.
using ledger = std::vector<std::pair<std::string, const comm::flight_recorder*>>;

/// A communicator that enters all that is split off it into a ledger.
class listed {
    using inner = comm::threads::communicator;

  public:
    listed(std::shared_ptr<inner> of, std::shared_ptr<ledger> to, std::string name)
        : of_(std::move(of)), to_(std::move(to)), name_(std::move(name)) {
        to_->emplace_back(name_, &of_->recorder());
    }
    [[nodiscard]] integer rank() const { return of_->rank(); }
    [[nodiscard]] integer size() const { return of_->size(); }
    [[nodiscard]] const char* name() const { return of_->name(); }
    [[nodiscard]] const comm::flight_recorder& recorder() const { return of_->recorder(); }
    [[nodiscard]] auto start(const comm::request& what) { return of_->start(what); }
    void run(const comm::request& what) { of_->run(what); }
    [[nodiscard]] listed split(integer colour, integer key, const char* name) {
        return {std::make_shared<inner>(of_->split(colour, key, name)), to_, name_ == "world" ? name : name_};
    }

  private:
    std::shared_ptr<inner> of_;
    std::shared_ptr<ledger> to_;
    std::string name_;
};
static_assert(comm::communicator<listed>);

cost::byte_table recorded(const ledger& from) {
    cost::byte_table sum;
    for (const auto& [name, recorder] : from)
        for (int i = 0; i < cost::among_count; ++i)
            for (int k = 0; k < comm::operations_count; ++k)
                if (name == cost::name_of(static_cast<cost::among>(i)))
                    sum.add(static_cast<cost::among>(i), static_cast<comm::operation>(k),
                            recorder->bytes(static_cast<comm::operation>(k)));
    return sum;
}

/// What a rank recorded in its second step, and what its plan says.
struct seen_traffic {
    cost::byte_table recorded;
    cost::traffic planned;
    integer rows =
        -1;  // that its experts received; -1: several ranks hold the same, and it is not known which got them
};

template <class Engine> integer rows_received(Engine& engine) {
    const degrees& mesh = engine.links().of;
    if (mesh.expert_copies() * mesh.etp > 1) return -1;
    integer rows = 0;
    engine.model().each_buffer(&engine.memory().buffers, [&](auto& view, const nn::storage&, auto...) {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(*view.data)>, integer>) {
            const integer held = view.size() / mesh.ep;
            for (integer e = 0; e < held; ++e) rows += view.data[engine.links().at.ep * held + e];
        }
    });
    return rows;
}

template <class Engine, class Model>
std::vector<seen_traffic> traffic_on(const Model& model, const train::layout_facts& layout, const run_factors& f) {
    std::vector<seen_traffic> all(static_cast<std::size_t>(layout.mesh.ranks()));
    comm::threads::run(layout.mesh.ranks(), [&](auto& mine) {
        auto names = std::make_shared<ledger>();
        listed ranks{std::shared_ptr<comm::threads::communicator>{&mine, [](auto*) {}}, names, "world"};
        Engine engine{model, {.batch = {2, layout_length}, .workers = 1}, 0, optim::adamw_facts{}, comm::link{ranks},
                      layout};
        engine.initialise(1);
        const train::step_settings settings{.learning_rate = 1e-3, .clip = 1, .balance_alpha = f.balance};
        const integer each = f.sequences / layout.mesh.dp;
        const auto step = [&](std::uint64_t seed) {
            const layout_batch batch{f, seed};
            engine.step(batch.part(engine.links().at.dp * each, each), settings);
        };
        step(0);
        const cost::byte_table before = recorded(*names);
        step(1);
        auto& seen = all[static_cast<std::size_t>(ranks.rank())];
        seen.recorded = recorded(*names);
        seen.recorded.add(before, -1);
        const schedule::table* table = nullptr;
        schedule::table view;
        if (engine.pipeline_schedule().has_value()) view = engine.pipeline_schedule()->view(), table = &view;
        seen.planned = cost::traffic_of(engine.model(),
                                        {.mesh = engine.links().of,
                                         .at = engine.links().at,
                                         .shards = engine.shape().shards,
                                         .batch = engine.shape().batch,
                                         .micro_batches = each / 2,
                                         .balances = f.balance != 0},
                                        table);
        seen.rows = rows_received(engine);
    });
    return all;
}

void compare_traffic(const std::vector<seen_traffic>& all) {
    integer planned_rows = 0;
    cost::byte_table recorded, planned;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        const seen_traffic& seen = all[rank];
        CAPTURE(rank);
        const cost::byte_table most = seen.planned.most(), exact = seen.planned.with(std::max<integer>(seen.rows, 0));
        for (int i = 0; i < cost::among_count; ++i)
            for (int k = 0; k < comm::operations_count; ++k) {
                const auto ranks = static_cast<cost::among>(i);
                const auto kind = static_cast<comm::operation>(k);
                CAPTURE(cost::name_of(ranks));
                CAPTURE(comm::name_of(kind));
                const integer bytes = seen.recorded(ranks, kind);
                if (seen.planned.of_row(ranks, kind) == 0 || seen.rows >= 0) {
                    CHECK(bytes == exact(ranks, kind));
                } else {
                    CHECK(bytes >= seen.planned.fixed(ranks, kind));
                    CHECK(bytes <= most(ranks, kind));
                }
            }
        planned_rows += seen.planned.even_rows;
        recorded.add(seen.recorded);
        planned.add(seen.planned.even());
    }
    // What one rank receives more, another receives less.
    constexpr auto all_to_all = comm::operation::all_to_all;
    CHECK(recorded(cost::among::expert, all_to_all) == planned(cost::among::expert, all_to_all));
}

template <class Family>
using split_engine = train::engine<decltype(Family::template transformer<bf16, true>(models::model_config{}))>;
using whole_engine = train::engine<decltype(models::latent_family::transformer<bf16>(models::model_config{}))>;

struct traffic_case {
    degrees mesh;
    integer zero = 0, shard_within = 0;
    schedule::built (*schedule)(int, int) = &schedule::built::of<schedule::one_f_one_b>;
    integer stages = 0;  // 0: one a rank
    nn::recomputation again{};
    double balance = 0.05;
    bool rings = false, tied = false;
    integer depths = 1;
};

template <class Family = models::latent_family> void check_traffic(const traffic_case& c) {
    run_factors f;
    f.config.num_key_value_heads = 4, f.config.head_dim = 6;  // which latent attention does not read
    f.config.num_nextn_predict_layers = c.depths;
    f.config.tie_word_embeddings = c.tied;
    f.balance = c.balance;
    const integer stages = c.stages > 0 ? c.stages : c.mesh.pp;
    const train::layout_facts layout{.mesh = c.mesh,
                                     .zero = c.zero,
                                     .shard_within = c.shard_within,
                                     .schedule = c.schedule,
                                     .layers = stages_for(stages, f.config),
                                     .micro_batches = f.sequences / c.mesh.dp / 2};
    CAPTURE(text_of_layout(layout));
    auto model = Family::template transformer<bf16, true>(f.config, c.again);
    if (c.rings)
        model.each_segment([&](const auto&, auto kind) {
            std::get<kind()>(model.segments).layer.of.self_attn.exchange = nn::context_exchange::ring;
        });
    compare_traffic(traffic_on<split_engine<Family>>(model, layout, f));
}

}  // namespace

TEST_CASE("traffic: every byte of a step is planned, by ranks and kind") {
    const traffic_case cases[] = {
        {.mesh = {.dp = 2, .ep = 2}},
        {.mesh = {.pp = 4}},
        {.mesh = {.tp = 4, .cp = 2}, .balance = 0},
        {.mesh = {.tp = 2, .ep = 2}, .again = {.norms = true}},
        {.mesh = {.cp = 2, .ep = 2}, .again = {.norms = true}, .depths = 2},
        {.mesh = {.cp = 4}, .rings = true},
        {.mesh = {.dp = 2, .tp = 2, .ep = 4}, .zero = 1, .again = {.blocks = true}},
        {.mesh = {.dp = 2, .tp = 2, .ep = 2, .etp = 2}, .zero = 1},
        {.mesh = {.dp = 2, .pp = 2, .ep = 2}, .tied = true},
        {.mesh = {.dp = 2, .pp = 2, .cp = 2, .ep = 4}, .zero = 1, .schedule = &schedule::built::of<schedule::zb_h1>},
        {.mesh = {.dp = 2, .pp = 2, .cp = 2, .ep = 2},
         .zero = 1,
         .schedule = &schedule::built::of<schedule::dual_pipe>,
         .again = {.norms = true, .up_projections = true, .swiglu = true}},
        {.mesh = {.pp = 2, .tp = 2, .ep = 2},
         .schedule = &schedule::built::of<schedule::interleaved_one_f_one_b<2>>,
         .stages = 4},
        {.mesh = {.dp = 2, .tp = 2, .ep = 2}, .zero = 2},
        {.mesh = {.dp = 4, .pp = 2, .ep = 4}, .zero = 3},
        {.mesh = {.dp = 2, .pp = 2, .ep = 2}, .zero = 2, .schedule = &schedule::built::of<schedule::zb_h1>},
        {.mesh = {.dp = 2, .pp = 2}, .zero = 3, .schedule = &schedule::built::of<schedule::zb_v>, .stages = 4},
        {.mesh = {.dp = 2, .pp = 2, .tp = 2, .ep = 2},
         .zero = 3,
         .schedule = &schedule::built::of<schedule::dual_pipe>},
        {.mesh = {.dp = 4, .tp = 2, .ep = 2}, .zero = 2, .shard_within = 2},
    };
    for (const traffic_case& c : cases) check_traffic(c);
}

TEST_CASE("traffic: grouped-query attention") {
    using family = models::grouped_query_experts_family;
    check_traffic<family>({.mesh = {.tp = 2, .cp = 2, .ep = 2}, .again = {.norms = true}});
    check_traffic<family>({.mesh = {.pp = 2, .cp = 2}, .rings = true});
    check_traffic<family>({.mesh = {.tp = 8}});  // more ranks than kv heads
}

TEST_CASE("traffic: replicas of whole models") {
    const run_factors f;
    const auto model = models::latent_family::transformer<bf16>(f.config);
    for (const integer zero : {0, 1, 2, 3}) {
        CAPTURE(zero);
        compare_traffic(traffic_on<whole_engine>(model, {.mesh = {.dp = 4}, .zero = zero, .micro_batches = 2}, f));
    }
}

}  // namespace fathom::test
