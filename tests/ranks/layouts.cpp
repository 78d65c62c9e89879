// Whatever the layout, the numbers are those of one rank: losses, gradients, norms and weights of every combination of
// degrees that a small model admits on up to eight ranks.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fathom/comm.hpp>
#include <fathom/core/random_stream.hpp>
#include <fathom/models/families.hpp>
#include <fathom/train/engine.hpp>
#include <fathom/train/pretrained.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace fathom {
namespace {

constexpr integer length = 16, vocabulary = 40, depths = 1, blocks = 4;
struct tiny : deepseek_v3<vocab_size<vocabulary>, hidden_size<24>, num_hidden_layers<blocks>, first_k_dense_replace<1>,
                          num_attention_heads<8>, q_lora_rank<12>, kv_lora_rank<8>, qk_nope_head_dim<6>,
                          qk_rope_head_dim<4>, v_head_dim<5>, intermediate_size<16>, moe_intermediate_size<8>,
                          n_routed_experts<8>, num_experts_per_tok<3>, n_shared_experts<1>,
                          num_nextn_predict_layers<depths>, max_position_embeddings<32>, initializer_range<0.1>> {};
constexpr nn::extents micro_batch_shape{2, length};
const auto whole_model = models::latent_family::transformer<double>(tiny::config());
const auto split_model = models::latent_family::transformer<double, true>(tiny::config());
using whole_engine = train::engine<std::remove_const_t<decltype(whole_model)>>;
using split_engine = train::engine<std::remove_const_t<decltype(split_model)>>;

constexpr train::step_settings settings{
    .learning_rate = 3e-3, .clip = 0.5, .balance_alpha = 0.05, .z_loss = 1e-3, .bias_update_speed = 0.01};

/// Packed documents of uneven lengths, with labels that are ignored.
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
                targets.push_back(drawn.uniform(100'000 + at) < 0.8 ? id(2 * at + 1) : train::ignored);
                starts.push_back(static_cast<std::int32_t>(i < 5 + row % 3 ? 0 : 5 + row % 3));
            }
    }
    [[nodiscard]] train::batch_view part(integer first, integer count) const {
        const integer at = first * length;
        return {count, length, tokens.data() + at, targets.data() + at, nullptr, starts.data() + at};
    }
};

/// Tensors by name, put together from the slices of all ranks.
class gathered {
  public:
    void put(const std::string& name, const nn::storage& facts, const nn::part& part, integer row, double value,
             integer column) {
        const integer width = facts.whole_width();
        auto& tensor = tensors_[name];
        tensor.resize(static_cast<std::size_t>(part.whole_rows() * width), std::nan(""));
        double& to = tensor[static_cast<std::size_t>((part.row + row) * width + facts.column + column)];
        if (!std::isnan(to) && to != value) ++unlike_;
        to = value;
    }
    [[nodiscard]] const auto& tensors() const { return tensors_; }
    /// Numbers of which two ranks have other bits.
    [[nodiscard]] integer unlike() const { return unlike_; }

  private:
    std::map<std::string, std::vector<double>> tensors_;
    integer unlike_ = 0;
};
struct history {
    std::vector<double> numbers;  // of all steps
    gathered gradients, weights;
    std::map<std::string, std::vector<double>> biases;
};

void gather(auto& engine, gathered& to, auto member) {
    engine.each_part([&](const auto& p, const nn::part& part) {
        for (integer n = 0; n < part.count; ++n)
            for (integer r = 0; r < part.rows; ++r)
                for (integer c = 0; c < p.storage.width; ++c)
                    to.put(train::detail::numbered_name(p.name, part.number + n), p.storage, part, r,
                           (p.*member)(part.first + n * part.step + r, c), c);
    });
}

/// Five steps; `first` and `count` are this replica's part of the batch.
template <class Engine>
void five_steps(Engine& engine, integer sequences, integer replica, integer replicas, history& seen, std::mutex& mutex,
                bool gradients_whole) {
    using view = train::parameter_view<double, double>;
    for (std::uint64_t step = 0; step < 5; ++step) {
        const packed_batch batch{sequences, step};
        const integer each = sequences / replicas;
        const train::step_result r = engine.step(batch.part(replica * each, each), settings);
        const std::lock_guard lock{mutex};
        if (engine.ranks().rank() == 0)
            for (const double x : {r.loss, r.cross_entropy, r.mtp_loss, r.balance_loss, r.z_loss, r.gradient_norm,
                                   static_cast<double>(r.tokens), static_cast<double>(r.targets)})
                seen.numbers.push_back(x);
        if (step == 0 && gradients_whole) gather(engine, seen.gradients, &view::gradient);
    }
    const std::lock_guard lock{mutex};
    gather(engine, seen.weights, &view::value);
    engine.each_router_bias([&](const std::string& name, const auto& bias) {
        seen.biases[name].assign(bias.data, bias.data + bias.size());
    });
}

history alone(integer sequences) {
    history seen;
    std::mutex mutex;
    const planning::rank_shape shape{.batch = micro_batch_shape, .workers = 1};
    whole_engine engine{whole_model, shape, planning::lower(whole_model, shape).bytes, optim::adamw_facts{}};
    engine.initialise(1);
    five_steps(engine, sequences, 0, 1, seen, mutex, true);
    return seen;
}

template <integer Count> layer_range evenly(integer stage) {
    // The last stage has the head and the modules of multi-token prediction, and its share of the rest.
    constexpr integer rest = blocks + 1;
    const share_of mine{rest, Count, stage};
    return {mine.first, mine.count + (stage == Count - 1 ? 1 + depths : 0)};
}
models::layers_of_stage stages_for(integer count) {
    return count == 1   ? &evenly<1>
           : count == 2 ? &evenly<2>
           : count == 4 ? &evenly<4>
           : count == 3 ? &evenly<3>
                        : nullptr;
}

history on_ranks(const train::layout_facts& layout, integer sequences) {
    history seen;
    std::mutex mutex;
    comm::threads::run(layout.mesh.ranks(), [&](auto& mine) {
        split_engine engine{
            split_model, {.batch = micro_batch_shape, .workers = 1}, 0, optim::adamw_facts{}, comm::link{mine}, layout};
        engine.initialise(1);
        five_steps(engine, sequences, engine.links().at.dp, layout.mesh.dp, seen, mutex, layout.zero == 0);
    });
    return seen;
}

/// The largest max|a - b| / max|b| over tensors, and where.
struct difference {
    double most = 0;
    std::string where;
    void add(const std::string& name, const std::vector<double>& a, const std::vector<double>& b) {
        double apart = 0, largest = 0;
        bool sound = a.size() == b.size();
        for (std::size_t i = 0; sound && i < a.size(); ++i) {
            sound = !std::isnan(a[i]);
            apart = std::max(apart, std::abs(a[i] - b[i]));
            largest = std::max(largest, std::abs(b[i]));
        }
        const double ratio = !sound ? 1e9 : largest == 0 ? (apart == 0 ? 0 : 1e9) : apart / largest;
        if (ratio > most) most = ratio, where = name;
    }
    void add(const auto& a, const auto& b) {
        if (a.size() != b.size()) most = 1e9, where = "number of tensors";
        for (const auto& [name, numbers] : b)
            add(name, a.count(name) > 0 ? a.at(name) : std::vector<double>{}, numbers);
    }
};

std::string text_of_layout(const train::layout_facts& l) {
    return text_of("dp ", l.mesh.dp, " pp ", l.mesh.pp, " tp ", l.mesh.tp, " cp ", l.mesh.cp, " ep ", l.mesh.ep,
                   " etp ", l.mesh.etp, " zero ", l.zero);
}

void compare(const history& seen, const history& expected, bool gradients) {
    difference numbers, gradient, weights, biases;
    numbers.add("losses and norms", seen.numbers, expected.numbers);
    CHECK_MESSAGE(numbers.most < 1e-10, numbers.where, " differ by ", numbers.most);
    if (gradients) gradient.add(seen.gradients.tensors(), expected.gradients.tensors());
    CHECK_MESSAGE(gradient.most < 1e-10, gradient.where, " gradient differs by ", gradient.most);
    weights.add(seen.weights.tensors(), expected.weights.tensors());
    CHECK_MESSAGE(weights.most < 1e-10, weights.where, " weight differs by ", weights.most);
    biases.add(seen.biases, expected.biases);
    CHECK_MESSAGE(biases.most < 1e-10, biases.where, " bias differs by ", biases.most);
    CHECK_MESSAGE(seen.gradients.unlike() == 0, "gradients of replicas differ");
    CHECK_MESSAGE(seen.weights.unlike() == 0, "weights of replicas differ");
}

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
    const history expected = alone(16);
    const char* only = std::getenv("FATHOM_ONLY");
    integer count = 0;
    for (const degrees& d : all_degrees()) {
        const train::layout_facts layout{
            .mesh = d, .layers = stages_for(d.pp), .micro_batches = 16 / d.dp / micro_batch_shape.sequences};
        const std::string text = text_of_layout(layout);
        if (only != nullptr && text.find(only) == std::string::npos) continue;
        CAPTURE(text);
        compare(on_ranks(layout, 16), expected, true);
        ++count;
    }
    MESSAGE(count, " layouts");
    if (only == nullptr) CHECK(count >= 60);
}

}  // namespace fathom
