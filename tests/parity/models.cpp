// Every case of the reference implementation: logits, hidden states, routing, loss and all gradients.
#include "oracle.hpp"

#include <fathom/recipe/plan.hpp>
#include <map>

#include "described_models.hpp"

namespace fathom::parity_test {

template <class T> struct formats : precision<weights<T>> {};
template <class Model, class T>
struct recipe_of : training<Model, mesh<>, formats<T>, sequence_length<17>, micro_batch<2>> {};

template <class Model, class T> auto make_engine() {
    using recipe_type = recipe_of<Model, T>;
    constexpr auto plan = planning::plan_of<recipe_type>(2);
    return train::engine{planning::transformer_of<recipe_type>(),
                         {.batch = recipe_type::batch, .workers = 2},
                         plan.bytes,
                         optim::adamw_facts{}};
}

/// Inputs of a case, as the engine takes them.
struct inputs {
    std::vector<std::int32_t> tokens, targets, positions, starts;
    integer length;
    explicit inputs(const safetensors::file& io)
        : tokens(parity::integers(io, "input_ids")), length(io.at("input_ids").shape[1]) {
        // The case with multi-token prediction was made with the tokens themselves as labels.
        targets = parity::shifted(io.find("mtp.loss") != nullptr ? tokens : parity::integers(io, "labels"), length);
        if (io.find("position_ids") != nullptr) {
            positions = parity::integers(io, "position_ids");
            starts = parity::starts_of(positions, length);
        }
    }
    [[nodiscard]] train::batch_view view() const {
        return {static_cast<integer>(tokens.size()) / length,
                length,
                tokens.data(),
                targets.data(),
                positions.empty() ? nullptr : positions.data(),
                starts.empty() ? nullptr : starts.data()};
    }
};

template <class T> std::span<const T> all(const matrix<T>& m) {
    REQUIRE(m.contiguous());
    return {m.data, static_cast<std::size_t>(m.size())};
}

/// Differences of two stored states of the residual stream: what a layer added.
template <class T> std::vector<T> difference(const matrix<T>& after, const matrix<T>& before) {
    std::vector<T> d(static_cast<std::size_t>(after.size()));
    for (std::size_t i = 0; i < d.size(); ++i) d[i] = after.data[i] - before.data[i];
    return d;
}

#define CLOSE(values, name)                                                     \
    do {                                                                        \
        INFO((name));                                                           \
        CHECK(parity::distance<T>(values, parity::numbers(io, name)) <= bound); \
    } while (false)

template <class Model, class T> void hidden_states(auto& engine, const safetensors::file& io, double bound) {
    const auto& s = engine.memory().saved;
    CLOSE(all(s.embedded), "hidden.embed");
    matrix<T> before = s.embedded;
    engine.model().each_layer([&](const auto& layer, auto kind, integer i, integer number) {
        const auto& kept = std::get<kind()>(s.blocks)[static_cast<std::size_t>(i)];
        const std::string name = text_of("hidden.layer", number);
        CLOSE(all(kept.y), name);
        CLOSE(difference<T>(kept.in.mid, before), name + ".attn_out");
        CLOSE(difference<T>(kept.y, kept.in.mid), name + ".mlp_out");
        if constexpr (requires { kept.in.mlp.ids; }) {
            const std::string router = text_of("router.layer", number);
            const auto ids = parity::integers(io, router + ".topk_ids");
            CHECK(std::equal(ids.begin(), ids.end(), kept.in.mlp.ids.data));
            CLOSE(all(kept.in.mlp.weights), router + ".topk_weights");
        }
        (void)layer;
        before = kept.y;
    });
    CLOSE(all(s.normed), "hidden.final_norm");
    // The logits, from the final states that the loss was made of.
    matrix<T> head = engine.memory().weight_views.head;
    std::vector<T> logits(static_cast<std::size_t>(s.normed.rows * head.rows));
    ops::product(engine.queue(), matrix<T>{logits.data(), s.normed.rows, head.rows}, matrix<const T>{s.normed},
                 matrix<const T>{head});
    CLOSE(std::span<const T>{logits}, "logits");
}

template <class T> void gradients(auto& engine, const safetensors::file& io, const std::string& prefix, double bound) {
    using view = train::parameter_view<T, T>;
    std::size_t seen = 0;
    for (const auto& g : train::named_state(engine, &view::gradient)) {
        if (io.find(prefix + g.name) == nullptr) {
            INFO(g.name);
            FAIL("no gradient is stored under this name");
        }
        CLOSE(std::span<const T>(g.numbers), prefix + g.name);
        ++seen;
    }
    std::size_t stored = 0;
    for (const auto& tensor : io.tensors()) stored += tensor.name.starts_with(prefix) ? 1 : 0;
    CHECK(seen == stored);
}

template <class Model, class T> void check_case(const std::string& name, double bound) {
    const safetensors::file io{parity::path("oracle/" + name + "/io.safetensors")};
    auto engine = make_engine<Model, T>();
    train::load_pretrained(engine, parity::path("oracle/" + name));
    const inputs in{io};
    const train::step_result result = engine.accumulate(in.view(), {.balance_alpha = 0});
    const std::string loss = io.find("mtp.total_loss") != nullptr ? "mtp.total_loss" : "loss";
    CHECK(parity::distance<double>(std::vector<double>{result.loss}, parity::numbers(io, loss)) <= bound);
    if (io.find("mtp.loss") != nullptr) {
        CHECK(std::abs(result.mtp_loss / 0.3 / parity::numbers(io, "mtp.loss")[0] - 1) <= bound);
        CHECK(std::abs(result.cross_entropy / parity::numbers(io, "mtp.main_loss")[0] - 1) <= bound);
        CLOSE(all(engine.memory().saved.mtp[0].normed), "mtp.hidden");
        gradients<T>(engine, io, "mtp.grad.", bound);
    } else {
        gradients<T>(engine, io, "grad.", bound);
        // Forward again: backward has used what it kept.
        engine.evaluate(in.view(), {});
        hidden_states<Model, T>(engine, io, bound);
    }
}

}  // namespace fathom::parity_test

#define ORACLE_CASE(name)                                                      \
    TEST_CASE("oracle " #name) {                                               \
        fathom::parity_test::check_case<described::name, double>(#name, 1e-9); \
        fathom::parity_test::check_case<described::name, float>(#name, 2e-4);  \
    }

ORACLE_CASE(v3_plain)
ORACLE_CASE(v3_packed)
ORACLE_CASE(v3_qlora_bias_eps)
ORACLE_CASE(v3_switches)
ORACLE_CASE(v3_yarn)
ORACLE_CASE(v3_mtp)
ORACLE_CASE(v2lite_greedy)
ORACLE_CASE(v2_group_limited)
ORACLE_CASE(llama_gqa)
ORACLE_CASE(llama_gqa_packed)
ORACLE_CASE(llama_linear_rope_tied)
