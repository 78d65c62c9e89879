// Sharded training: whatever of a run's state ranks share, the numbers are those of one rank, the bytes are those that
// were planned, and gradients travel while backward goes on.
#include "layout_runs.hpp"

#include <fathom/comm/communicator.hpp>
#include <fathom/recipe/plan.hpp>
#include <fathom/train/held_slices.hpp>

namespace fathom::test {
namespace {

using runs = layout_runs<models::latent_family, double>;

/// Enough blocks that they take turns: more than there are rooms for whole ones.
run_factors many_blocks() {
    run_factors f;
    f.config.num_hidden_layers = 7;
    f.sequences = 24;
    return f;
}
train::layout_facts layout_of(const degrees& d, integer zero, const run_factors& f) {
    return {.mesh = d,
            .zero = zero,
            .layers = stages_for(d.pp, f.config),
            .micro_batches = pieces(f.sequences / d.dp, runs::shape.sequences)};
}
history on_ranks(const train::layout_facts& layout, const run_factors& f) {
    return layout.mesh.split() ? runs::on(layout, f) : runs::on_whole(layout, f);
}

/// A communicator that notes what is started on it and on all that are split from it, in one order.
struct started {
    std::string label;
    double first = 0;  // number of the input, of operations in fp64
};
class noting {
    using inner = comm::threads::communicator;

  public:
    noting(inner& of, std::vector<started>& notes) : of_(&of), notes_(&notes) {}

    [[nodiscard]] integer rank() const { return of_->rank(); }
    [[nodiscard]] integer size() const { return of_->size(); }
    [[nodiscard]] const char* name() const { return of_->name(); }
    [[nodiscard]] const comm::flight_recorder& recorder() const { return of_->recorder(); }
    [[nodiscard]] auto start(const comm::request& what) {
        const bool has_number = what.format == comm::element::fp64 && what.input != nullptr && what.count > 0;
        notes_->push_back({what.label, has_number ? *static_cast<const double*>(what.input) : 0.0});
        return of_->start(what);
    }
    void run(const comm::request& what) { start(what).wait(); }
    [[nodiscard]] noting split(integer colour, integer key, const char* name) {
        auto part = std::make_shared<inner>(of_->split(colour, key, name));
        noting made{*part, *notes_};
        made.owned_ = std::move(part);
        return made;
    }

  private:
    inner* of_;
    std::vector<started>* notes_;
    std::shared_ptr<inner> owned_;
};

/// What rank 0 starts in a whole run.
std::vector<started> notes_of(const train::layout_facts& layout, const run_factors& f) {
    std::vector<std::vector<started>> notes(static_cast<std::size_t>(layout.mesh.ranks()));
    runs::on(layout, f,
             [&](auto& mine) { return std::make_unique<noting>(mine, notes[static_cast<std::size_t>(mine.rank())]); });
    return notes[0];
}
integer first_of(const std::vector<started>& notes, const std::string& label, integer from = 0) {
    for (auto i = static_cast<std::size_t>(from); i < notes.size(); ++i)
        if (notes[i].label == label) return static_cast<integer>(i);
    return -1;
}
integer last_of(const std::vector<started>& notes, const std::string& label) {
    for (std::size_t i = notes.size(); i-- > 0;)
        if (notes[i].label == label) return static_cast<integer>(i);
    return -1;
}
integer count_of(const std::vector<started>& notes, const std::string& label) {
    return std::count_if(notes.begin(), notes.end(), [&](const started& n) { return n.label == label; });
}

}  // namespace

TEST_CASE("zero: every stage gives one rank's numbers, in fewer bytes, and replicas have the same bits") {
    const run_factors f = many_blocks();
    const history expected = runs::alone(f);
    for (const degrees& d :
         {degrees{.dp = 2}, degrees{.dp = 3}, degrees{.dp = 4}, degrees{.dp = 2, .tp = 2}, degrees{.dp = 2, .ep = 2},
          degrees{.dp = 2, .cp = 2}, degrees{.dp = 4, .ep = 2, .etp = 2}, degrees{.dp = 2, .tp = 2, .ep = 2}}) {
        integer bytes = 0;
        for (const integer zero : {0, 1, 2, 3}) {
            const train::layout_facts layout = layout_of(d, zero, f);
            CAPTURE(text_of_layout(layout));
            const history seen = on_ranks(layout, f);
            compare(seen, expected, zero == 0);
            if (zero > 0) CHECK(seen.most_bytes < bytes);
            bytes = seen.most_bytes;
        }
    }
}

TEST_CASE("zero: every stage under pipeline schedules, with two copies of stages and with weights' gradients apart") {
    run_factors f = many_blocks();
    const history expected = runs::alone(f);
    for (auto* schedule : {&schedule::built::of<schedule::one_f_one_b>, &schedule::built::of<schedule::zb_h1>,
                           &schedule::built::of<schedule::dual_pipe>, &schedule::built::of<schedule::zb_v>})
        for (const integer zero : {0, 1, 2, 3}) {
            train::layout_facts layout = layout_of({.dp = 2, .pp = 2}, zero, f);
            layout.schedule = schedule;
            const std::string name = schedule(2, 6).name();
            if (name == "zb_v") layout.layers = stages_for(4, f.config);
            CAPTURE(name);
            CAPTURE(text_of_layout(layout));
            compare(on_ranks(layout, f), expected, zero == 0);
        }
}

TEST_CASE("zero: with a tied embedding on both ends, recomputed blocks, experts in rounds") {
    run_factors f = many_blocks();
    f.config.tie_word_embeddings = true;
    f.again.blocks = true;
    f.load = run_factors::routing::few_experts;
    f.sequences = 16, f.steps = 3;
    const history expected = runs::alone(f);
    for (const degrees& d : {degrees{.dp = 2, .pp = 2}, degrees{.dp = 4, .pp = 2, .ep = 2}})
        for (const integer zero : {1, 2, 3}) {
            train::layout_facts layout = layout_of(d, zero, f);
            layout.schedule = &schedule::built::of<schedule::zb_h1>;
            CAPTURE(text_of_layout(layout));
            compare(on_ranks(layout, f), expected, false);
        }
}

TEST_CASE("zero: further rounds of experts add to gradients before their weights' part") {
    run_factors f = many_blocks();
    f.load = run_factors::routing::few_experts;
    f.sequences = 32, f.steps = 2;
    const history expected = runs::alone(f);
    for (const integer zero : {1, 2, 3}) {
        train::layout_facts layout = layout_of({.dp = 8, .ep = 4}, zero, f);
        layout.schedule = &schedule::built::of<schedule::zb_h1>;
        CAPTURE(text_of_layout(layout));
        compare(on_ranks(layout, f), expected, false);
    }
}

TEST_CASE("zero: key-value heads that some tensor ranks share") {
    using grouped = layout_runs<models::grouped_query_family, double>;
    run_factors f = many_blocks();
    f.config = {};
    f.config.type = models::family::llama;
    f.config.vocab_size = layout_vocabulary, f.config.hidden_size = 24, f.config.num_hidden_layers = 7;
    f.config.num_attention_heads = 8, f.config.num_key_value_heads = 2, f.config.head_dim = 4;
    f.config.attention_bias = true;
    f.config.intermediate_size = 16, f.config.max_position_embeddings = 32, f.config.initializer_range = 0.1;
    f.sequences = 8, f.steps = 3;
    const history expected = grouped::alone(f);
    for (const integer zero : {0, 1, 2, 3}) {
        const train::layout_facts layout = layout_of({.dp = 2, .tp = 4}, zero, f);
        CAPTURE(text_of_layout(layout));
        compare(grouped::on(layout, f), expected, zero == 0);
    }
}

TEST_CASE("zero: shards within some ranks, with copies of them across the others") {
    run_factors f = many_blocks();
    f.steps = 3;
    const history expected = runs::alone(f);
    struct shared {
        degrees mesh;
        integer within;
    };
    for (const auto& [d, within] :
         {shared{{.dp = 4}, 2}, shared{{.dp = 2}, 1}, shared{{.dp = 4}, 4}, shared{{.dp = 2, .cp = 2}, 2},
          shared{{.dp = 4, .ep = 2}, 2}, shared{{.dp = 4, .ep = 2}, 1}, shared{{.dp = 4, .tp = 2}, 2}}) {
        integer bytes = 0;
        for (const integer zero : {1, 2, 3}) {
            train::layout_facts layout = layout_of(d, zero, f);
            layout.shard_within = within;
            CAPTURE(within);
            CAPTURE(text_of_layout(layout));
            const history seen = on_ranks(layout, f);
            compare(seen, expected, false);
            if (zero == 1) {
                const integer all = on_ranks(layout_of(d, zero, f), f).most_bytes;
                CHECK((within == d.dp * d.cp ? seen.most_bytes == all : seen.most_bytes > all));
            } else if (within > 1) {
                CHECK(seen.most_bytes < bytes);
            }
            bytes = seen.most_bytes;
        }
    }
}

TEST_CASE("zero: gradients that are divided before they are summed have the same sum") {
    run_factors f = many_blocks();
    f.steps = 2;
    const history expected = runs::alone(f);
    for (const integer within : {0, 2})
        for (const integer zero : {0, 1, 2, 3}) {
            if (within > 0 && zero == 0) continue;
            train::layout_facts layout = layout_of({.dp = 4}, zero, f);
            layout.shard_within = within;
            layout.gradient_predivide = 4;
            CAPTURE(within);
            CAPTURE(text_of_layout(layout));
            compare(on_ranks(layout, f), expected, zero == 0);
        }
    // What travels is a quarter.
    for (const integer zero : {0, 1, 2}) {
        train::layout_facts layout = layout_of({.dp = 2, .tp = 2}, zero, f);
        const char* label = zero < 2 ? "gradients" : "gradients of a block";
        const auto plain = notes_of(layout, f);
        layout.gradient_predivide = 4;
        const auto divided = notes_of(layout, f);
        const auto at = static_cast<std::size_t>(first_of(plain, label));
        CHECK(divided[at].label == label);
        CHECK(plain[at].first != 0);
        CHECK(divided[at].first == plain[at].first / 4);
    }
}

TEST_CASE("zero: gradients travel beside backward, and before the last micro-batch only where they are sharded") {
    run_factors f = many_blocks();
    f.steps = 1;
    const integer micro_batches = 6, blocks = f.config.num_hidden_layers;
    for (const integer zero : {0, 1, 2, 3}) {
        const train::layout_facts layout = layout_of({.dp = 2, .tp = 2}, zero, f);
        CAPTURE(text_of_layout(layout));
        const auto notes = notes_of(layout, f);
        const integer last_backward = last_of(notes, "gradient of attention's input");
        const integer last_forward = last_of(notes, "input of attention");
        REQUIRE(count_of(notes, "input of attention") == micro_batches * (blocks + 1));
        const char* label = zero < 2 ? "gradients" : "gradients of a block";
        const integer first = first_of(notes, label);
        CHECK(first >= 0);
        CHECK(first < last_backward);
        if (zero < 2) CHECK(first > last_forward);
        // Dense blocks are one bucket with split matrices and one with whole ones; others have one of experts, too.
        const integer buckets = 2 * f.config.first_k_dense_replace + 3 * (blocks - f.config.first_k_dense_replace);
        if (zero > 1) CHECK(count_of(notes, label) == micro_batches * buckets);
        if (zero == 3) {  // the second block's weights are on their way when the first one begins
            CHECK(first_of(notes, "weights of a block") >= 0);
            const integer begin = first_of(notes, "input of attention");
            CHECK(count_of({notes.begin(), notes.begin() + begin}, "weights of a block") == 2 + 3);
            // Forward and backward bring each block once; the last two are still there when backward begins.
            CHECK(count_of(notes, "weights of a block") <= micro_batches * 2 * buckets);
        }
    }
    // In a pipeline each block's last gradient decides: those of the last stage's blocks go before its last exchange.
    train::layout_facts layout = layout_of({.dp = 2, .pp = 2}, 1, f);
    for (auto* schedule : {&schedule::built::of<schedule::one_f_one_b>, &schedule::built::of<schedule::zb_v>}) {
        layout.schedule = schedule;
        if (schedule(2, 6).name() == "zb_v") layout.layers = stages_for(4, f.config);
        const auto notes = notes_of(layout, f);
        CHECK(first_of(notes, "gradients") >= 0);
        CHECK(count_of(notes, "gradients") == count_of(notes, "weights"));
    }
}

TEST_CASE("zero: evaluation sees the same weights") {
    run_factors f = many_blocks();
    const auto model = models::latent_family::transformer<double>(f.config);
    const layout_batch batch{f, 7};
    const auto losses_of = [&](integer ranks, integer zero) {
        double loss = 0;
        comm::threads::run(ranks, [&](auto& mine) {
            runs::whole_engine engine{model,
                                      {.batch = runs::shape, .workers = 1},
                                      0,
                                      optim::adamw_facts{},
                                      comm::link{mine},
                                      {.mesh = {.dp = ranks}, .zero = zero}};
            engine.initialise(1);
            const integer each = f.sequences / ranks;
            const auto part = batch.part(mine.rank() * each, each);
            engine.step(part, {.learning_rate = 1e-2});
            const double seen = engine.evaluate(part, {}).loss;
            if (mine.rank() == 0) loss = seen;
        });
        return loss;
    };
    const double expected = losses_of(1, 0);
    for (const integer zero : {1, 2, 3}) CHECK(losses_of(4, zero) == doctest::Approx(expected).epsilon(1e-12));
}

TEST_CASE("zero: masters of bf16 weights begin with the bits of one rank") {
    run_factors f = many_blocks();
    f.config.num_hidden_layers = 4;
    const auto model = models::latent_family::transformer<bf16>(f.config);
    using engine_type = train::engine<std::remove_const_t<decltype(model)>>;
    const auto masters_of = [&](integer ranks, integer zero) {
        std::map<std::string, std::vector<float>> all;
        std::mutex mutex;
        comm::threads::run(ranks, [&](auto& mine) {
            engine_type engine{model,
                               {.batch = runs::shape, .workers = 1},
                               0,
                               optim::adamw_facts{},
                               comm::link{mine},
                               {.mesh = {.dp = ranks}, .zero = zero}};
            engine.initialise(1);
            train::each_held_slice(engine, [&](const auto& s) {
                const std::lock_guard lock{mutex};
                auto& to = all[s.of.name];
                to.resize(static_cast<std::size_t>(s.of.of_rows * s.of.of_columns));
                std::copy_n(s.master, s.of.size(), to.begin() + s.of.row * s.of.of_columns + s.of.column);
                CHECK(static_cast<float>(s.weights[0]) == static_cast<float>(bf16{s.master[0]}));
            });
        });
        return all;
    };
    const auto expected = masters_of(1, 0);
    for (const integer zero : {1, 2, 3}) CHECK(masters_of(3, zero) == expected);
}

TEST_CASE("zero: ranks that wait for each other need equally many micro-batches") {
    run_factors f = many_blocks();
    const auto model = models::latent_family::transformer<double>(f.config);
    const layout_batch batch{f, 7};
    const auto step_of = [&](integer zero, integer of_second) {
        comm::threads::run(2, [&](auto& mine) {
            runs::whole_engine engine{model,
                                      {.batch = runs::shape, .workers = 1},
                                      0,
                                      optim::adamw_facts{},
                                      comm::link{mine},
                                      {.mesh = {.dp = 2}, .zero = zero}};
            engine.initialise(1);
            engine.step(batch.part(0, mine.rank() == 0 ? 6 : of_second), {});
        });
    };
    for (const integer zero : {2, 3}) {
        CHECK_THROWS_WITH_AS(step_of(zero, 4),
                             doctest::Contains("found 3 micro-batches on replica 0 and 2 on replica 1"), error);
        CHECK_THROWS_WITH_AS(step_of(zero, 0),
                             doctest::Contains("found 3 micro-batches on replica 0 and 0 on replica 1"), error);
    }
    for (const integer zero : {0, 1}) CHECK_NOTHROW(step_of(zero, 0));
}

namespace {

struct many : deepseek_v3<vocab_size<40>, hidden_size<24>, num_hidden_layers<7>, first_k_dense_replace<1>,
                          num_attention_heads<8>, q_lora_rank<12>, kv_lora_rank<8>, qk_nope_head_dim<6>,
                          qk_rope_head_dim<4>, v_head_dim<5>, intermediate_size<16>, moe_intermediate_size<8>,
                          n_routed_experts<8>, num_experts_per_tok<3>, n_shared_experts<1>, num_nextn_predict_layers<1>,
                          max_position_embeddings<32>> {};
template <class Mesh, class... Words>
using recipe_of =
    training<many, Mesh, precision<weights<fp64>>, sequence_length<layout_length>, micro_batch<2>, Words...>;
template <integer Stage, class... Words> using on_any = recipe_of<mesh<dp<any>>, zero<Stage>, Words...>;
static_assert(bytes_per_rank<on_any<0>>(dp<4>{}) > bytes_per_rank<on_any<1>>(dp<4>{}));
static_assert(bytes_per_rank<on_any<1>>(dp<4>{}) > bytes_per_rank<on_any<2>>(dp<4>{}));
static_assert(bytes_per_rank<on_any<2>>(dp<4>{}) > bytes_per_rank<on_any<3>>(dp<4>{}));
static_assert(bytes_per_rank<on_any<3, shard_within<2>>>(dp<4>{}) == bytes_per_rank<on_any<3>>(dp<2>{}));

template <class Recipe, integer Ranks> void check_bytes() {
    constexpr integer planned = planning::bytes_of<Recipe, planning::start_of<Ranks>>(1);
    const auto model = planning::transformer_of<Recipe>();
    comm::threads::run(Ranks, [&](auto& mine) {
        const runs::whole_engine engine{
            model,
            {.batch = Recipe::batch, .workers = 1},
            planned,
            optim::adamw_facts{},
            comm::link{mine},
            {.mesh = {.dp = Ranks}, .zero = Recipe::zero_stage, .shard_within = Recipe::shard_ranks}};
    });
}

}  // namespace

TEST_CASE("zero: bytes are those that the recipe's plan has") {
    check_bytes<on_any<1>, 3>();
    check_bytes<on_any<2>, 3>();
    check_bytes<on_any<3>, 3>();
    check_bytes<on_any<3, shard_within<2>>, 4>();
    CHECK_THROWS_WITH_AS((check_bytes<on_any<3>, 3>(), static_cast<void>(planning::sharding{degrees{.dp = 3}, 1, 2})),
                         "sharding: found 3 data ranks (dp x cp), expected a multiple of shard_within<2>", error);
}

}  // namespace fathom::test
