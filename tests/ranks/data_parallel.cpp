// Ranks that share a batch give one rank's numbers, whatever their number, their parts and the order of events.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fathom/comm.hpp>
#include <fathom/core/random_stream.hpp>
#include <fathom/models/families.hpp>
#include <fathom/train/diagnose.hpp>
#include <limits>
#include <memory>
#include <string>
#include <vector>
#include "engines.hpp"

#include "../unit/scratch_folder.hpp"

namespace fathom {
namespace {

using test::message_of;

constexpr integer length = 12, depths = 2, vocabulary = 40;
struct tiny : deepseek_v3<vocab_size<vocabulary>, hidden_size<24>, num_hidden_layers<3>, first_k_dense_replace<1>,
                          num_attention_heads<2>, q_lora_rank<12>, kv_lora_rank<8>, qk_nope_head_dim<6>,
                          qk_rope_head_dim<4>, v_head_dim<5>, intermediate_size<20>, moe_intermediate_size<6>,
                          n_routed_experts<8>, num_experts_per_tok<3>, n_shared_experts<1>,
                          num_nextn_predict_layers<depths>, max_position_embeddings<32>, initializer_range<0.1>> {};
struct recipe : training<tiny, mesh<dp<any>>, precision<weights<fp64>>, sequence_length<length>, micro_batch<2>> {};

using engine_type = train::engine<decltype(planning::transformer_of<recipe>())>;
std::unique_ptr<engine_type> make_engine(comm::link ranks = {}) {
    auto engine = std::make_unique<engine_type>(planning::transformer_of<recipe>(),
                                                planning::rank_shape{.batch = recipe::batch, .workers = 1},
                                                planning::bytes_of<recipe>(1), optim::adamw_facts{}, ranks);
    engine->initialise(1);
    return engine;
}

constexpr train::step_settings settings{
    .learning_rate = 3e-3, .clip = 0.5, .balance_alpha = 0.05, .z_loss = 1e-3, .bias_update_speed = 0.01};

/// Packed documents of uneven lengths; more labels are ignored the later a sequence stands, so that means over parts
/// are not the mean over the whole.
struct packed_batch {
    integer sequences;
    std::vector<std::int32_t> tokens, targets, starts;

    packed_batch(integer rows, std::uint64_t seed) : sequences(rows) {
        const random_stream drawn{seed, 7};
        for (integer row = 0; row < rows; ++row)
            for (integer i = 0; i < length; ++i) {
                const auto at = static_cast<std::uint64_t>(row * length + i);
                const auto id = [&](std::uint64_t n) {
                    return static_cast<std::int32_t>(drawn.uniform(n) * static_cast<double>(vocabulary));
                };
                tokens.push_back(id(2 * at));
                const bool counts = drawn.uniform(100'000 + at) * static_cast<double>(rows) > static_cast<double>(row);
                targets.push_back(counts ? id(2 * at + 1) : train::ignored);
                starts.push_back(static_cast<std::int32_t>(i < 5 + row % 3 ? 0 : 5 + row % 3));
            }
    }
    [[nodiscard]] train::batch_view part(integer first, integer count) const {
        const integer at = first * length;
        return {count, length, tokens.data() + at, targets.data() + at, nullptr, starts.data() + at};
    }
};

/// What a rank saw of five steps.
struct history {
    std::vector<double> numbers;    // losses, norms and counts of all steps
    std::vector<double> gradients;  // of the first step, before it is clipped
    std::vector<double> weights, biases;
};

template <class Part> history five_steps(engine_type& engine, integer sequences, const Part& part) {
    history seen;
    for (std::uint64_t step = 0; step < 5; ++step) {
        const packed_batch batch{sequences, step};
        const auto [first, count] = part(sequences);
        const train::step_result r = engine.step(batch.part(first, count), settings);
        for (const double x : {r.loss, r.cross_entropy, r.mtp_loss, r.balance_loss, r.z_loss, r.gradient_norm,
                               static_cast<double>(r.tokens), static_cast<double>(r.targets)})
            seen.numbers.push_back(x);
        const auto& gradients = engine.memory().gradients;
        if (step == 0) seen.gradients.assign(gradients.data, gradients.data + gradients.count);
    }
    const auto& weights = engine.memory().weights;
    seen.weights.assign(weights.data, weights.data + weights.count);
    engine.each_router_bias([&](const std::string&, const auto& bias) {
        seen.biases.insert(seen.biases.end(), bias.data, bias.data + bias.size());
    });
    return seen;
}
const auto whole = [](integer sequences) { return std::pair<integer, integer>{0, sequences}; };

/// max|a - b| / max|b|, over all numbers.
double apart(const std::vector<double>& a, const std::vector<double>& b) {
    REQUIRE(a.size() == b.size());
    double most = 0, largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        most = std::max(most, std::abs(a[i] - b[i]));
        largest = std::max(largest, std::abs(b[i]));
    }
    return most / largest;
}

}  // namespace

TEST_CASE("data parallel: one rank's losses, gradients, norm, weights and biases, the same bits on all ranks") {
    for (const integer sequences : {12, 5}) {
        const auto alone = five_steps(*make_engine(), sequences, whole);
        for (const integer ranks : {2, 3, 4, 8}) {
            CAPTURE(sequences);
            CAPTURE(ranks);
            std::vector<history> of(static_cast<std::size_t>(ranks));
            comm::threads::run(ranks, [&](auto& mine) {
                // Uneven parts: the last rank takes what is left, and where there are more ranks than sequences,
                // nothing.
                const auto share = [&](integer all) {
                    const integer each = pieces(all, ranks), first = std::min(mine.rank() * each, all);
                    return std::pair<integer, integer>{first, std::min(each, all - first)};
                };
                of[static_cast<std::size_t>(mine.rank())] =
                    five_steps(*make_engine(comm::link{mine}), sequences, share);
            });
            for (const history& seen : of) {
                CHECK(apart(seen.numbers, alone.numbers) < 1e-10);
                CHECK(apart(seen.gradients, alone.gradients) < 1e-10);
                CHECK(apart(seen.weights, alone.weights) < 1e-10);
                CHECK(seen.biases == alone.biases);
                CHECK(seen.numbers == of[0].numbers);
                CHECK(seen.gradients == of[0].gradients);
                CHECK(seen.weights == of[0].weights);
            }
        }
    }
}

TEST_CASE("data parallel: delays change no bit") {
    const auto half = [](integer rank) {
        return [rank](integer all) { return std::pair<integer, integer>{rank * all / 2, all / 2}; };
    };
    std::vector<history> expected(2);
    comm::threads::run(2, [&](auto& mine) {
        expected[static_cast<std::size_t>(mine.rank())] =
            five_steps(*make_engine(comm::link{mine}), 4, half(mine.rank()));
    });
    for (std::uint64_t seed = 0; seed < 200; ++seed)
        comm::threads::run(2, [&](auto& mine) {
            comm::faulty<std::remove_reference_t<decltype(mine)>> ranks{std::move(mine),
                                                                        {.seed = seed, .delay = 0.5, .reorder = 0.3}};
            const history seen = five_steps(*make_engine(comm::link{ranks}), 4, half(ranks.rank()));
            if (seen.weights != expected[0].weights || seen.numbers != expected[0].numbers)
                fail("seed ", seed, ": other numbers");
        });
}

TEST_CASE("data parallel: gradients travel once a step, however many micro-batches it has") {
    const auto bytes_of = [](integer sequences) {
        integer bytes = 0;
        comm::threads::run(2, [&](auto& mine) {
            const auto engine = make_engine(comm::link{mine});
            const packed_batch batch{sequences, 1};
            const integer before = engine->links().bytes(comm::operation::all_reduce);
            engine->step(batch.part(mine.rank() * sequences / 2, sequences / 2), settings);
            if (mine.rank() == 0) bytes = engine->links().bytes(comm::operation::all_reduce) - before;
        });
        return bytes;
    };
    const auto alone = make_engine();
    const integer gradients = alone->memory().gradients.count * 8;
    CHECK(bytes_of(4) == bytes_of(12));
    CHECK(bytes_of(4) > gradients);
    CHECK(bytes_of(4) < gradients + 1024);  // counts, losses and loads beside them
}

TEST_CASE("data parallel: a number that is not finite on one rank ends all with its place") {
    const std::string text = message_of([] {
        comm::threads::run(3, [](auto& mine) {
            const auto engine = make_engine(comm::link{mine});
            if (mine.rank() == 1)
                engine->memory().weight_views.embedding.data[0] = std::numeric_limits<double>::quiet_NaN();
            const packed_batch batch{6, 3};
            test::scratch_folder folder;
            const auto part = batch.part(2 * mine.rank(), 2);
            const auto seen = engine->step(part, settings);
            CHECK(std::isnan(seen.loss));
            try {
                train::require_finite(*engine, part, settings, seen, folder / "bad.safetensors");
            } catch (const error&) {
                const auto saved = train::load_batch(text_of(folder / "bad.safetensors.rank", mine.rank()));
                CHECK(std::equal(saved.tokens.begin(), saved.tokens.end(), part.tokens));
                throw;
            }
        });
    });
    CHECK(text.find("rank 1: step 1, micro-batch 0") != std::string::npos);
    CHECK(text.find("embed_tokens.weight[0, 0]") != std::string::npos);
}

TEST_CASE("data parallel: a bad id on one rank ends all with its rank") {
    const std::string text = message_of([] {
        comm::threads::run(2, [](auto& mine) {
            const auto engine = make_engine(comm::link{mine});
            packed_batch batch{4, 3};
            batch.tokens.back() = vocabulary;
            engine->step(batch.part(2 * mine.rank(), 2), settings);
        });
    });
    CHECK(text.find("rank 1: batch: token 11 of sequence 1 is 40") != std::string::npos);
}

}  // namespace fathom
