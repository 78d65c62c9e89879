// Experts over ranks give one rank's numbers, wherever they lie and wherever tokens go.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fathom/comm.hpp>
#include <fathom/nn/dispatched_experts.hpp>
#include <mutex>
#include <string>
#include <vector>

#include "../unit/nn/layers.hpp"

namespace fathom {
namespace {

using whole_layer = nn::experts<double>;
using split_layer = nn::dispatched_experts<double>;
using stream = tensor<double, axis::tokens, axis::hidden>;

/// V3's routing, with a bias and shared experts.
constexpr nn::experts_facts v3{.hidden_size = 10,
                               .moe_intermediate_size = 6,
                               .n_routed_experts = 8,
                               .n_shared_experts = 2,
                               .router = {.experts = 8,
                                          .top_k = 3,
                                          .groups = 4,
                                          .topk_group = 2,
                                          .score = ops::router_facts::score_kind::sigmoid,
                                          .group_score = ops::router_facts::group_kind::best_two,
                                          .normalise = true,
                                          .scaling_factor = 2.5,
                                          .bias = true}};
/// V2's, without shared experts.
constexpr nn::experts_facts v2{.hidden_size = 10,
                               .moe_intermediate_size = 6,
                               .n_routed_experts = 8,
                               .router = {.experts = 8, .top_k = 2, .scaling_factor = 1.5}};

/// What is done, once by one rank and once by many.
struct example {
    nn::experts_facts of = v3;
    integer length = 15;                                        // one place of the last chunk is missing
    std::vector<integer> sequences = {2, 2, 2, 2, 2, 2, 2, 2};  // of each data rank
    nn::recomputation again{};
    double balance_weight = 0.1;
    double expert_tokens = 2;
    double capacity_factor = 0;
    std::vector<double> bias = {0.1, -0.1, 0.05, 0, 0, 0.2, -0.05, 0};
    bool most_tokens = false;
    bool delayed = false;
    bool gradients = true;  // are there when inputs' are made
    struct {
        integer storage = -1;  // -1: x
        std::size_t index = 0;
        double by = 0;
    } moved{};  // one number of all

    [[nodiscard]] integer most_sequences() const { return *std::max_element(sequences.begin(), sequences.end()); }
    /// Of the data ranks before this one.
    [[nodiscard]] integer sequences_before(integer dp) const {
        integer sum = 0;
        for (integer d = 0; d < dp; ++d) sum += sequences[static_cast<std::size_t>(d)];
        return sum;
    }
};

struct result {
    std::vector<double> y, dx;
    std::vector<std::vector<double>> gradients;  // of whole storages
    std::vector<integer> load;
    double balance_loss = 0;
    integer rounds = 1, bytes = -1;
};

nn::micro_batch<double> batch_of(nn::extents shape, double balance_weight, double* balance_loss) {
    nn::micro_batch<double> batch;
    batch.shape = shape;
    batch.balance_weight = balance_weight;
    batch.balance_loss = balance_loss;
    return batch;
}

/// Numbers of all tokens.
struct tokens_of {
    test::drawn<double> x, y, dy;
    tokens_of(integer rows, integer hidden) : x{rows, hidden, 1}, y{rows, hidden, 2}, dy{rows, hidden, 3} {}
};

/// A layer's forward and backward on some tokens. y becomes the output, dy the gradient of the input.
template <class Layer>
void run_layer(const Layer& layer, const nn::micro_batch<double>& batch, integer tokens,
               const typename Layer::template parameters<double>& weights,
               typename Layer::template parameters<double>& gradients, typename Layer::buffers& buffers,
               matrix<double> x, matrix<double> y, matrix<double> dy, result& seen, bool early_gradients) {
    const auto& shape = batch.shape;
    host::workers one{1};
    test::block_of_memory scratch{round_up(layer.scratch(shape), 64) + 64};
    host::queue queue{one, scratch.arena().take<std::byte>(0), round_up(layer.scratch(shape), 64)};
    test::carved saved{[&](arena& memory) { return layer.keep(memory, shape); }};
    test::carved deferred{[&](arena& memory) { return layer.defer(memory, shape, false); }};
    test::carved work{[&](arena& memory) { return layer.work(memory, shape); }};
    arena counted;
    layer.keep(counted, shape);
    layer.defer(counted, shape, true);
    layer.work(counted, shape);
    seen.bytes = counted.peak();
    std::vector<double> dx(static_cast<std::size_t>(tokens * layer.of.hidden_size), 7);
    const stream dx_view{matrix<double>{dx.data(), tokens, layer.of.hidden_size}};
    layer.forward(queue, batch, weights, buffers, stream{x}, *saved, *work, stream{y});
    work.poison();
    layer.account(queue, batch, buffers, *saved);
    if constexpr (requires { saved->counts; }) {
        seen.rounds =
            nn::detail::expert_rounds{saved->counts, layer.of.expert.ranks, layer.of.expert_tensor.ranks}.count();
        layer.backward_input(queue, batch, weights, buffers, *saved, stream{dy}, *deferred, *work, dx_view,
                             early_gradients ? &gradients : nullptr);
    } else {
        layer.backward_input(queue, batch, weights, buffers, *saved, stream{dy}, *deferred, *work, dx_view);
    }
    work.poison();
    layer.backward_weight(queue, *saved, *deferred, gradients);
    std::copy(dx.begin(), dx.end(), dy.data);
}

/// visit(number of storage, local index, whole index) for every number of a split layer's parameters.
template <class Visit> void each_number(const split_layer& layer, const whole_layer& whole, Visit&& visit) {
    std::vector<nn::storage> of_whole;
    split_layer::parameters<double> unused;
    whole.each_parameter(unused, [&](auto&, const nn::storage& s, auto...) { of_whole.push_back(s); });
    std::size_t number = 0;
    layer.each_parameter(unused, [&](auto&, const nn::storage& s, auto...) {
        const nn::storage& w = of_whole[number];
        CHECK(s.whole_width() == w.width);
        for (std::size_t q = 0; q < s.parts.size() && s.parts[q].name != nullptr; ++q) {
            const nn::part &part = s.parts[q], &of = w.parts[q];
            CHECK(std::string{part.name} == of.name);
            CHECK(part.whole_rows() == of.rows);
            CHECK(part.whole_count() == of.count);
            for (integer n = 0; n < part.count; ++n)
                for (integer r = 0; r < part.rows; ++r)
                    for (integer c = 0; c < s.width; ++c)
                        visit(number, (part.first + n * part.step + r) * s.width + c,
                              (of.first + (part.number + n) * of.step + part.row + r) * w.width + s.column + c);
        }
        ++number;
    });
}

result of_one_rank(const example& what) {
    const integer sequences = what.sequences_before(static_cast<integer>(what.sequences.size()));
    const whole_layer layer{what.of, what.again};
    test::parameter_numbers<double> weights, gradients;
    whole_layer::parameters<double> weight_views, gradient_views;
    weights.bind(layer, weight_views, 0.5, 5);
    gradients.bind(layer, gradient_views, 0, 0);
    auto bias = what.bias;
    result seen;
    seen.load.resize(8);
    whole_layer::buffers buffers{vector_view(bias.data(), 8), vector_view(seen.load.data(), 8)};
    if (!what.of.router.bias) buffers.bias = {};
    tokens_of all{sequences * what.length, what.of.hidden_size};
    const auto batch = batch_of({sequences, what.length}, what.balance_weight, &seen.balance_loss);
    run_layer(layer, batch, batch.shape.tokens(), weight_views, gradient_views, buffers, all.x.view, all.y.view,
              all.dy.view, seen, true);
    seen.y = all.y.numbers;
    seen.dx = all.dy.numbers;
    for (const auto& storage : gradients.all) seen.gradients.push_back(storage->numbers);
    return seen;
}

/// The same by the ranks of a mesh: all their tokens, and the sums of their gradients, loads and losses.
result of_ranks(const degrees& mesh, example what) {
    what.sequences.resize(static_cast<std::size_t>(mesh.dp));
    const integer all_tokens = what.sequences_before(mesh.dp) * what.length;
    const whole_layer whole{what.of, what.again};
    result seen;
    seen.load.resize(8);
    seen.y.resize(static_cast<std::size_t>(all_tokens * what.of.hidden_size), NAN);
    seen.dx = seen.y;
    test::parameter_numbers<double> weights;
    whole_layer::parameters<double> weight_views;
    weights.bind(whole, weight_views, 0.5, 5);
    if (what.moved.storage >= 0)
        weights.all[static_cast<std::size_t>(what.moved.storage)]->numbers[what.moved.index] += what.moved.by;
    for (const auto& storage : weights.all) seen.gradients.emplace_back(storage->numbers.size());
    std::mutex one_at_a_time;
    const auto as_rank = [&](const comm::link& all) {
        const comm::mesh_links ranks{all, mesh};
        const auto at = ranks.at;
        nn::dispatched_experts_facts facts{what.of};
        facts.expert = {mesh.ep, at.ep};
        facts.expert_tensor = {mesh.etp, at.etp};
        facts.tensor = {mesh.tp, at.tp};
        facts.expert_tokens = what.expert_tokens;
        facts.capacity_factor = what.capacity_factor;
        if (what.most_tokens) facts.most_tokens = what.most_sequences() * pieces(what.length, mesh.cp);
        const split_layer layer{facts, what.again};
        const integer missing = mesh.cp > 1 ? 1 : 0;
        const nn::context_share context{mesh.cp, at.cp, what.length + missing, missing};
        const integer count = context.count(at.cp);
        result mine;
        auto batch =
            batch_of({what.sequences[static_cast<std::size_t>(at.dp)], count}, what.balance_weight, &mine.balance_loss);
        batch.ranks = &ranks;
        batch.context = context;
        const share_of share = batch.stream_tokens(batch.shape);
        const auto row_of = [&](integer token) {
            const integer flat = share.first + token, sequence = what.sequences_before(at.dp) + flat / count;
            const auto early = context.places(at.cp, 0), late = context.places(at.cp, 1);
            const integer i = flat % count, place = i < early.count ? early.first + i : late.first + i - early.count;
            return sequence * what.length + place;
        };
        const integer hidden = what.of.hidden_size;
        tokens_of from{all_tokens, hidden}, own{share.count, hidden};
        if (what.moved.storage < 0) from.x.numbers[what.moved.index] += what.moved.by;
        for (integer t = 0; t < share.count; ++t)
            for (integer c = 0; c < hidden; ++c) {
                own.x.view(t, c) = from.x.view(row_of(t), c);
                own.y.view(t, c) = from.y.view(row_of(t), c);
                own.dy.view(t, c) = from.dy.view(row_of(t), c);
            }
        test::parameter_numbers<double> own_weights, gradients;
        split_layer::parameters<double> own_views, gradient_views;
        own_weights.bind(layer, own_views, 0, 0);
        gradients.bind(layer, gradient_views, 0, 0);
        mine.load.resize(8);
        auto bias = what.bias;
        split_layer::buffers buffers{vector_view(bias.data(), 8), vector_view(mine.load.data(), 8)};
        if (!what.of.router.bias) buffers.bias = {};
        {
            const std::lock_guard lock{one_at_a_time};  // doctest's checks, and the sums below
            each_number(layer, whole, [&](std::size_t number, integer local, integer index) {
                own_weights.all[number]->numbers[static_cast<std::size_t>(local)] =
                    weights.all[number]->numbers[static_cast<std::size_t>(index)];
            });
        }
        run_layer(layer, batch, share.count, own_views, gradient_views, buffers, own.x.view, own.y.view, own.dy.view,
                  mine, what.gradients);
        const std::lock_guard lock{one_at_a_time};
        each_number(layer, whole, [&](std::size_t number, integer local, integer index) {
            seen.gradients[number][static_cast<std::size_t>(index)] +=
                gradients.all[number]->numbers[static_cast<std::size_t>(local)];
        });
        for (std::size_t e = 0; e < 8; ++e) seen.load[e] += mine.load[e];
        for (integer t = 0; t < share.count; ++t)
            for (integer c = 0; c < hidden; ++c) {
                seen.y[static_cast<std::size_t>(row_of(t) * hidden + c)] = own.y.view(t, c);
                seen.dx[static_cast<std::size_t>(row_of(t) * hidden + c)] = own.dy.view(t, c);
            }
        seen.balance_loss += mine.balance_loss;
        seen.rounds = std::max(seen.rounds, mine.rounds);
        if (mesh.cp == 1 && (what.most_tokens || what.sequences.front() == what.most_sequences())) {
            if (seen.bytes < 0 || at.dp == 0) seen.bytes = std::max(seen.bytes, mine.bytes);
            if (at.dp == 0) CHECK(mine.bytes == seen.bytes);
        }
    };
    comm::threads::run(mesh.ranks(), [&](auto& mine) {
        if (!what.delayed) return as_rank(comm::link{mine});
        comm::faulty<std::remove_reference_t<decltype(mine)>> slow{std::move(mine),
                                                                   {.seed = 3, .delay = 0.5, .reorder = 0.3}};
        as_rank(comm::link{slow});
    });
    return seen;
}

/// max|a - b| / max|b|; where all of b is zero, so must be a.
double apart(const std::vector<double>& a, const std::vector<double>& b) {
    REQUIRE(a.size() == b.size());
    double most = 0, largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double difference = std::abs(a[i] - b[i]);
        most = std::isnan(difference) ? INFINITY : std::max(most, difference);
        largest = std::max(largest, std::abs(b[i]));
    }
    return largest > 0 ? most / largest : most;
}

result check(const degrees& mesh, example what) {
    INFO("dp ", mesh.dp, " tp ", mesh.tp, " cp ", mesh.cp, " ep ", mesh.ep, " etp ", mesh.etp);
    what.sequences.resize(static_cast<std::size_t>(mesh.dp));
    const result expected = of_one_rank(what), seen = of_ranks(mesh, what);
    CHECK(apart(seen.y, expected.y) < 1e-10);
    if (mesh.etp == 1) CHECK(seen.y == expected.y);  // what experts give is added in the order of choices
    CHECK(apart(seen.dx, expected.dx) < 1e-10);
    REQUIRE(seen.gradients.size() == expected.gradients.size());
    for (std::size_t i = 0; i < seen.gradients.size(); ++i) {
        CAPTURE(i);
        CHECK(apart(seen.gradients[i], expected.gradients[i]) < 1e-10);
    }
    CHECK(seen.load == expected.load);
    CHECK(std::abs(seen.balance_loss - expected.balance_loss) <= 1e-10 * expected.balance_loss);
    return seen;
}

const degrees several[] = {{.dp = 2, .ep = 2},
                           {.tp = 2, .ep = 2},
                           {.cp = 2, .ep = 2},
                           {.tp = 2, .etp = 2},
                           {.dp = 2, .tp = 2, .ep = 2, .etp = 2},
                           {.dp = 2, .tp = 2, .cp = 2, .ep = 4, .etp = 2},
                           {.dp = 4, .tp = 2, .ep = 2, .etp = 2},
                           {.tp = 8, .ep = 8}};

}  // namespace

TEST_CASE("experts over ranks: one rank's numbers on every mesh") {
    integer meshes = 0;
    for (const integer dp : {1, 2, 4, 8})
        for (const integer tp : {1, 2, 3, 4, 8})
            for (const integer cp : {1, 2, 4, 8})
                for (const integer ep : {1, 2, 4, 8})
                    for (const integer etp : {1, 2}) {
                        const integer stage = dp * tp * cp;
                        if (stage > 8 || stage % (ep * etp) != 0) continue;
                        check({.dp = dp, .tp = tp, .cp = cp, .ep = ep, .etp = etp}, {});
                        ++meshes;
                    }
    CHECK(meshes > 100);
}

TEST_CASE("experts over ranks: softmax routing without shared experts, and activations made again") {
    for (const auto& mesh : several) {
        check(mesh, {.of = v2});
        check(mesh, {.of = v2, .again = {.swiglu = true}, .balance_weight = 0});
        check(mesh, {.again = {.swiglu = true}});
    }
}

TEST_CASE("experts over ranks: more ranks than tokens, data ranks with fewer sequences or none") {
    for (const auto& mesh : several) {
        if (mesh.cp == 1) check(mesh, {.length = 3, .sequences = {1, 1, 1, 1}});
        for (const bool most_tokens : {false, true}) {
            const result seen =
                check(mesh, {.sequences = {3, 1, 2, 0}, .expert_tokens = 8, .most_tokens = most_tokens});
            // A rank that reserves rows for its own tokens alone holds back all others.
            if (mesh.dp == 4) CHECK((seen.rounds == 1) == most_tokens);
        }
    }
}

TEST_CASE("experts over ranks: an expert without tokens, and all tokens to one: more rounds, the same bytes") {
    for (auto of : {v3, v2}) {
        of.router.groups = of.router.topk_group = 1;
        of.router.bias = true;
        const std::vector<double> even(8), bias{100, 0, 0, 0, 0, 0, 0, -100};
        for (const integer top_k : {1, 2}) {
            of.router.top_k = top_k;
            for (const bool again : {false, true})
                for (const auto& mesh : several) {
                    const example what{.of = of, .again = {.swiglu = again}, .expert_tokens = 0.6, .bias = bias};
                    auto calm = what;
                    calm.bias = even;
                    calm.expert_tokens = 8;
                    calm.sequences.resize(8);
                    const result busy = check(mesh, what);
                    CHECK(busy.load[0] == static_cast<integer>(busy.y.size()) / of.hidden_size);
                    CHECK(busy.load[7] == 0);
                    CHECK(busy.rounds > 1);
                    CHECK(check(mesh, calm).rounds == 1);
                    calm.expert_tokens = 0.6;
                    CHECK(check(mesh, calm).bytes == busy.bytes);
                }
        }
    }
}

TEST_CASE("experts over ranks: beyond its capacity, an expert rank does not take the rows of the lowest scores") {
    for (const auto& mesh : several) check(mesh, {.capacity_factor = 1e6});
    // Two ranks with fifteen tokens each, which choose two of eight experts: of their rows each takes six from each.
    const example what{.of = v2, .length = 15, .balance_weight = 0.3, .capacity_factor = 0.4};
    constexpr degrees mesh{.tp = 2, .ep = 2};
    auto one = what;
    one.sequences = {2};
    const result seen = of_ranks(mesh, one);
    const whole_layer layer{v2, {}};
    test::parameter_numbers<double> weights;
    whole_layer::parameters<double> p;
    weights.bind(layer, p, 0.5, 5);
    const integer h = v2.hidden_size, i = v2.moe_intermediate_size;
    tokens_of all{30, h};
    matrix<double> y = all.y.view;
    struct pair {
        double score;
        integer token, expert;
    };
    std::vector<integer> load(8);
    for (integer source = 0; source < 2; ++source)
        for (integer holder = 0; holder < 2; ++holder) {
            std::vector<pair> pairs;
            for (integer t = 15 * source; t < 15 * (source + 1); ++t) {
                std::vector<pair> of(8);
                double sum = 0;
                for (integer e = 0; e < 8; ++e) {
                    double logit = 0;
                    for (integer c = 0; c < h; ++c) logit += all.x.view(t, c) * p.router(e, c);
                    of[static_cast<std::size_t>(e)] = {std::exp(logit), t, e};
                    sum += std::exp(logit);
                }
                std::sort(of.begin(), of.end(), [](const pair& a, const pair& b) { return a.score > b.score; });
                for (std::size_t j = 0; j < 2; ++j)
                    if (of[j].expert / 4 == holder) pairs.push_back({of[j].score / sum, t, of[j].expert});
            }
            std::sort(pairs.begin(), pairs.end(), [](const pair& a, const pair& b) { return a.score > b.score; });
            REQUIRE(pairs.size() > 6);
            pairs.resize(6);
            for (const auto& [score, t, e] : pairs) {
                ++load[static_cast<std::size_t>(e)];
                for (integer k = 0; k < i; ++k) {
                    double gate = 0, up = 0;
                    for (integer c = 0; c < h; ++c) {
                        gate += all.x.view(t, c) * p.gate_up(2 * e * i + k, c);
                        up += all.x.view(t, c) * p.gate_up(2 * e * i + i + k, c);
                    }
                    const double act = 1.5 * score * gate / (1 + std::exp(-gate)) * up;
                    for (integer c = 0; c < h; ++c) y(t, c) += act * p.down(e * h + c, k);
                }
            }
        }
    CHECK(apart(seen.y, all.y.numbers) < 1e-12);
    CHECK(seen.load == load);

    const tokens_of drawn{30, h};
    const auto loss = [&](integer storage, std::size_t index, double by) {
        auto moved = one;
        moved.moved = {storage, index, by};
        const result there = of_ranks(mesh, moved);
        double sum = there.balance_loss;
        for (std::size_t n = 0; n < there.y.size(); ++n) sum += drawn.dy.numbers[n] * there.y[n];
        return sum;
    };
    for (integer storage = -1; storage < 3; ++storage) {
        const auto& gradient = storage < 0 ? seen.dx : seen.gradients[static_cast<std::size_t>(storage)];
        for (std::size_t index = 0; index < gradient.size(); index += gradient.size() / 13) {
            const double slope = (loss(storage, index, 1e-5) - loss(storage, index, -1e-5)) / 2e-5;
            CHECK(std::abs(gradient[index] - slope) < 1e-7);
        }
    }
}

TEST_CASE("experts over ranks: the same bits whatever the order of events") {
    const degrees mesh{.dp = 2, .tp = 2, .cp = 2, .ep = 4, .etp = 2};
    const result first = of_ranks(mesh, {.expert_tokens = 0.5});
    const result second = of_ranks(mesh, {.expert_tokens = 0.5, .delayed = true});
    CHECK(first.rounds > 1);
    CHECK(first.y == second.y);
    CHECK(first.dx == second.dx);
}

TEST_CASE("experts over ranks: what cannot be is refused") {
    const auto text = [](const auto& body) {
        try {
            body();
        } catch (const error& e) {
            return std::string{e.what()};
        }
        return std::string{};
    };
    CHECK(text([] {
              of_ranks({.dp = 2, .ep = 2}, {.expert_tokens = 0.2, .gradients = false});
          }).find("rounds of tokens and no place for gradients of weights") != std::string::npos);
    nn::dispatched_experts_facts facts{v3};
    facts.expert = {2, 0};
    const split_layer layer{facts, {}};
    test::parameter_numbers<double> numbers;
    split_layer::parameters<double> views;
    numbers.bind(layer, views, 0.5, 5);
    split_layer::buffers buffers;
    test::drawn<double> x{3, 10, 1}, y{3, 10, 2}, dy{3, 10, 3};
    result seen;
    CHECK(text([&] {
              run_layer(layer, batch_of({1, 3}, 0, nullptr), 3, views, views, buffers, x.view, y.view, dy.view, seen,
                        true);
          }).find("found a batch for 1 x 1 ranks, expected the 2 x 1") != std::string::npos);
}

}  // namespace fathom
