// Attention that tensor ranks share by heads and context ranks by places gives one rank's numbers.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fathom/comm.hpp>
#include <fathom/nn/context_grouped_query_attention.hpp>
#include <fathom/nn/context_latent_attention.hpp>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "../unit/nn/layers.hpp"
#include "../unit/scratch_folder.hpp"

namespace fathom {
namespace {

using nn::context_exchange;
constexpr auto ring = context_exchange::ring;
constexpr auto all_gather = context_exchange::all_gather;
template <class T> using numbers = std::vector<T>;
constexpr ops::rope_facts rope{.theta = 100, .dim = 4};

/// Sequences of which context ranks hold parts: `documents` places long each at most, boundaries wherever they fall.
struct problem {
    integer sequences = 2, length = 40, missing = 0, document = 0;
    [[nodiscard]] integer here() const { return length - missing; }
    [[nodiscard]] integer tokens() const { return sequences * here(); }
    [[nodiscard]] std::int32_t start(integer sequence, integer place) const {
        if (document == 0) return 0;
        const integer shifted = place + 3 * sequence;  // other boundaries in each sequence
        return static_cast<std::int32_t>(std::max<integer>(0, shifted / document * document - 3 * sequence));
    }
};

/// Named numbers of a whole layer: its matrices or their gradients, and y and dx.
using named = std::map<std::string, numbers<double>>;

/// Which rows of [sequences, places] a rank has, in its order.
numbers<integer> rows_of(const problem& of, const nn::context_share& share) {
    numbers<integer> rows;
    for (integer s = 0; s < of.sequences; ++s)
        for (const int which : {0, 1}) {
            const auto run = share.places(share.rank, which);
            for (integer i = 0; i < run.count; ++i) rows.push_back(s * of.here() + run.first + i);
        }
    return rows;
}

/// Numbers of a whole matrix by its name, the same on all ranks.
double drawn_number(const char* name, integer index) {
    std::uint64_t seed = 5;
    for (const char* c = name; *c != 0; ++c) seed = seed * 131 + static_cast<std::uint64_t>(*c);
    return 0.4 * random_stream{seed, 1}.normal(static_cast<std::uint64_t>(index));
}

/// A rank's slices of parameters, cut as the layer declares them.
template <class E> struct slices {
    struct piece {
        nn::storage facts;
        numbers<E> values;
    };
    std::vector<std::unique_ptr<piece>> all;

    template <class Visit> static void each_row(const nn::storage& facts, Visit&& visit) {
        for (const nn::part& p : facts.parts)
            for (integer r = 0; p.name != nullptr && r < p.rows; ++r) visit(p, p.first + r, p.row + r);
    }
    template <class Layer, class Views> void bind(const Layer& layer, Views& views, bool filled) {
        layer.each_parameter(views, [&](auto& view, const nn::storage& facts, auto...) {
            auto& own = *all.emplace_back(
                std::make_unique<piece>(piece{facts, numbers<E>(static_cast<std::size_t>(facts.size()))}));
            each_row(facts, [&](const nn::part& p, integer here, integer whole) {
                for (integer c = 0; c < facts.width && filled; ++c)
                    own.values[static_cast<std::size_t>(here * facts.width + c)] = static_cast<E>(
                        (facts.start == nn::initial::one ? 1 : 0) +
                        static_cast<float>(drawn_number(p.name, whole * facts.whole_width() + facts.column + c)));
            });
            using plain = matrix<E>;
            view = facts.vector ? vector_view(own.values.data(), facts.rows)
                                : plain{own.values.data(), facts.rows, facts.width};
        });
    }
    /// Adds this rank's slices to the whole matrices.
    void add_to(named& whole) const {
        for (const auto& own : all)
            each_row(own->facts, [&](const nn::part& p, integer here, integer there) {
                auto& to = whole[p.name];
                to.resize(static_cast<std::size_t>(p.whole_rows() * own->facts.whole_width()));
                for (integer c = 0; c < own->facts.width; ++c)
                    to[static_cast<std::size_t>(there * own->facts.whole_width() + own->facts.column + c)] +=
                        static_cast<double>(own->values[static_cast<std::size_t>(here * own->facts.width + c)]);
            });
    }
};

/// Forward, both backwards, of one rank's part; what it gives is added to `sums`.
template <class Layer>
void run_rank(const Layer& layer, const problem& of, const nn::context_share& share, const comm::mesh_links* ranks,
              bool apart, named& sums, std::mutex& mutex) {
    using T = std::remove_const_t<typename decltype(std::declval<typename Layer::saved>().out)::element>;
    using A = accumulator_t<T>;
    const integer hidden = layer.of.hidden_size;
    const bool first = ranks == nullptr || ranks->at.tp == 0;
    const auto rows = rows_of(of, share);
    const nn::extents shape{of.sequences, share.count(share.rank), share.longest()};
    const integer n = shape.tokens();
    REQUIRE(n == static_cast<integer>(rows.size()));

    numbers<std::int32_t> positions, starts;
    numbers<T> x, y, dy, dx(static_cast<std::size_t>(n * hidden));
    for (const integer row : rows) {
        const integer place = row % of.here();
        starts.push_back(of.start(row / of.here(), place));
        positions.push_back(static_cast<std::int32_t>(place - starts.back()));
        for (integer c = 0; c < hidden; ++c) {
            const auto number = [&](const char* name) {
                return static_cast<T>(static_cast<A>(3 * drawn_number(name, row * hidden + c)));
            };
            x.push_back(number("x"));
            y.push_back(first ? number("residual") : T{});
            dy.push_back(number("dy"));
        }
    }
    numbers<A> cosines(static_cast<std::size_t>(of.length * rope.dim / 2)), sines(cosines.size());
    const matrix<A> cosine_table{cosines.data(), of.length, rope.dim / 2};
    const matrix<A> sine_table{sines.data(), of.length, rope.dim / 2};
    ops::rope_table<A>(rope, cosine_table, sine_table);
    nn::micro_batch<A> batch{.shape = shape,
                             .positions = positions.data(),
                             .starts = starts.data(),
                             .cosines = cosine_table,
                             .sines = sine_table};
    batch.ranks = ranks;
    batch.context = share;

    host::workers pool{1};
    const integer bytes = round_up(layer.scratch(shape), arena::alignment);
    test::block_of_memory scratch{bytes + arena::alignment};
    host::queue queue{pool, scratch.arena().template take<std::byte>(0), bytes};
    test::carved saved{[&](arena& memory) { return layer.keep(memory, shape); }};
    test::carved deferred{[&](arena& memory) { return layer.defer(memory, shape, apart); }};
    test::carved work{[&](arena& memory) { return layer.work(memory, shape); }};
    typename Layer::template parameters<T> p;
    typename Layer::template parameters<A> gradients;
    slices<T> weights;
    slices<A> slopes;
    weights.bind(layer, p, true);
    slopes.bind(layer, gradients, false);

    const auto view = [&](numbers<T>& of_rows) { return matrix<T>{of_rows.data(), n, hidden}; };
    layer.forward(queue, batch, p, {view(x)}, *saved, *work, {view(y)});
    work.poison();  // what a call used is gone when it returns
    layer.backward_input(queue, batch, p, *saved, {view(dy)}, *deferred, *work, {view(dx)});
    work.poison();
    if (apart) dy.assign(dy.size(), static_cast<T>(std::numeric_limits<float>::quiet_NaN()));
    layer.backward_weight(queue, *saved, *deferred, gradients);

    const std::lock_guard lock{mutex};
    slopes.add_to(sums);
    for (const auto& [name, part] : {std::pair{"y", &y}, std::pair{"dx", &dx}}) {
        auto& to = sums[name];
        to.resize(static_cast<std::size_t>(of.tokens() * hidden));
        for (std::size_t i = 0; i < part->size(); ++i)
            to[static_cast<std::size_t>(rows[i / static_cast<std::size_t>(hidden)] * hidden) +
               i % static_cast<std::size_t>(hidden)] += static_cast<double>(static_cast<A>((*part)[i]));
    }
}

template <class Layer> named alone(const Layer& layer, const problem& of) {
    named sums;
    std::mutex mutex;
    run_rank(layer, of, {.whole = of.length, .missing = of.missing}, nullptr, false, sums, mutex);
    return sums;
}

struct layout {
    integer tp = 1, cp = 1;
    context_exchange exchange = context_exchange::all_gather;
    bool apart = false;
    comm::faults faults{};
};

template <class Layer> named together(Layer layer, const problem& of, const layout& split) {
    named sums;
    std::mutex mutex;
    layer.of.exchange = split.exchange;
    comm::threads::run(split.tp * split.cp, [&](auto& mine) {
        comm::faulty unreliable{std::move(mine), split.faults};
        const comm::mesh_links links{comm::link{unreliable}, {.tp = split.tp, .cp = split.cp}};
        Layer own = layer;
        own.of.tensor = {split.tp, links.at.tp};
        own.of.context = {split.cp, links.at.cp};
        run_rank(own, of, {split.cp, links.at.cp, of.length, of.missing}, &links, split.apart, sums, mutex);
    });
    return sums;
}

/// The largest of max|a - b| / max|b| over all names; NaN if anything is.
double apart(const named& a, const named& b) {
    double worst = 0;
    REQUIRE(a.size() == b.size());
    for (const auto& [name, expected] : b) {
        const auto& found = a.at(name);
        REQUIRE(found.size() == expected.size());
        double most = 0, largest = 0;
        for (std::size_t i = 0; i < found.size(); ++i) {
            const double here = std::abs(found[i] - expected[i]);
            most = here <= most ? most : here;
            largest = std::max(largest, std::abs(expected[i]));
        }
        REQUIRE(largest > 0);
        worst = most / largest <= worst ? worst : most / largest;
    }
    return worst;
}

template <class Layer, class Context>
void check(const Layer& whole, const Context& context, const problem& of, const std::vector<layout>& layouts,
           double close = 1e-10) {
    const named expected = alone(whole, of);
    for (const layout& split : layouts) {
        INFO("tp ", split.tp, ", cp ", split.cp, std::string{split.exchange == ring ? ", ring" : ", all-gather"},
             ", length ", of.length, ", missing ", of.missing, ", documents of ", of.document);
        CHECK(apart(together(context, of, split), expected) < close);
    }
}

const std::vector<layout> both_ways{{1, 2}, {1, 4}, {1, 2, ring}, {1, 4, ring}};

template <template <class> class Attention, class T = double>
Attention<T> latent(integer q_lora_rank, bool bias, const nn::recomputation& again = {}) {
    return {nn::latent_attention_facts{.hidden_size = 12,
                                       .num_attention_heads = 4,
                                       .q_lora_rank = q_lora_rank,
                                       .kv_lora_rank = 8,
                                       .qk_nope_head_dim = 6,
                                       .qk_rope_head_dim = 4,
                                       .v_head_dim = 5,
                                       .attention_bias = bias,
                                       .rope = rope},
            again};
}
template <template <class> class Attention, class T = double>
Attention<T> grouped(integer heads, integer kv_heads, bool bias, const nn::recomputation& again = {}) {
    return {nn::grouped_query_attention_facts{.hidden_size = 12,
                                              .num_attention_heads = heads,
                                              .num_key_value_heads = kv_heads,
                                              .head_dim = 4,
                                              .attention_bias = bias,
                                              .rope = rope},
            again};
}
void check_latent(integer q_lora_rank, bool bias, const problem& of, const std::vector<layout>& layouts,
                  const nn::recomputation& again = {}) {
    check(latent<nn::latent_attention>(q_lora_rank, bias),
          latent<nn::context_latent_attention>(q_lora_rank, bias, again), of, layouts);
}
void check_grouped(integer heads, integer kv_heads, bool bias, const problem& of, const std::vector<layout>& layouts,
                   const nn::recomputation& again = {}) {
    check(grouped<nn::grouped_query_attention>(heads, kv_heads, bias),
          grouped<nn::context_grouped_query_attention>(heads, kv_heads, bias, again), of, layouts);
}

}  // namespace

TEST_CASE("attention over ranks: heads over tensor ranks") {
    for (const bool bias : {false, true}) {
        for (const integer q_lora_rank : {0, 7})
            check_latent(q_lora_rank, bias, {.length = 13, .document = 5}, {{1}, {2}, {4}});
        for (const integer kv_heads : {1, 2, 4, 8})
            check_grouped(8, kv_heads, bias, {.length = 13, .document = 5}, {{1}, {2}, {4}, {8}});
    }
}

TEST_CASE("attention over ranks: places over context ranks, whole and packed sequences") {
    for (const integer document : {0, 1, 7, 23}) {
        for (const integer q_lora_rank : {0, 7}) check_latent(q_lora_rank, true, {.document = document}, both_ways);
        check_grouped(4, 2, true, {.document = document}, both_ways);
    }
}

TEST_CASE("attention over ranks: sequences whose last places are missing, to empty chunks and empty ranks") {
    // Of four ranks' chunks of 5 places: fewer than a chunk, a chunk, more, and all late chunks.
    for (const integer missing : {1, 2, 5, 7, 20, 24}) {
        for (const integer document : {0, 9}) {
            check_latent(7, false, {.missing = missing, .document = document}, both_ways);
            check_grouped(4, 1, false, {.missing = missing, .document = document}, both_ways);
        }
    }
    check_latent(0, false, {.length = 4, .missing = 3}, {{1, 2}, {1, 2, ring}});
    check_grouped(4, 1, false, {.length = 4, .missing = 3}, {{1, 2}, {1, 2, ring}});
}

TEST_CASE("attention over ranks: three context ranks") {
    for (const integer missing : {0, 3, 9}) {
        check_latent(0, true, {.length = 42, .missing = missing, .document = 11}, {{1, 3}, {1, 3, ring}});
        check_grouped(4, 2, true, {.length = 42, .missing = missing, .document = 11}, {{1, 3}, {1, 3, ring}});
    }
}

TEST_CASE("attention over ranks: heads and places") {
    for (const auto exchange : {all_gather, ring}) {
        const std::vector<layout> layouts{{2, 2, exchange}, {4, 2, exchange}, {2, 4, exchange, true}};
        check_latent(7, true, {.missing = 1, .document = 13}, layouts);
        check_latent(0, true, {.missing = 2, .document = 13}, layouts);
        check_grouped(4, 1, true, {.missing = 2, .document = 13}, layouts);
        check_grouped(4, 2, true, {.document = 13}, layouts);
    }
}

TEST_CASE("attention over ranks: recomputed norms and projections, weights' gradients apart") {
    const std::vector<layout> layouts{{2, 1, all_gather, true}, {2, 2, all_gather, true}, {1, 4, ring, true}};
    for (const bool norms : {false, true})
        for (const bool up_projections : {false, true}) {
            const nn::recomputation again{.norms = norms, .up_projections = up_projections};
            for (const integer q_lora_rank : {0, 7})
                check_latent(q_lora_rank, true, {.missing = 6, .document = 13}, layouts, again);
            check_grouped(4, 2, true, {.missing = 6, .document = 13}, layouts, again);
        }
}

TEST_CASE("attention over ranks: chunks longer than a tile, sequences longer than a panel") {
    const std::vector<layout> layouts{{1, 2}, {1, 2, ring}};
    check_latent(0, false, {.sequences = 1, .length = 600, .missing = 3, .document = 333}, layouts);
    check_grouped(4, 2, false, {.sequences = 1, .length = 600, .missing = 3}, layouts);
}

TEST_CASE("attention over ranks: numbers of 16 bits sum in their accumulator") {
    for (const integer document : {0, 7}) {
        check(latent<nn::latent_attention, bf16>(7, true), latent<nn::context_latent_attention, bf16>(7, true),
              {.missing = 2, .document = document}, both_ways, 0.03);
        check(grouped<nn::grouped_query_attention, bf16>(4, 2, true),
              grouped<nn::context_grouped_query_attention, bf16>(4, 2, true), {.missing = 2, .document = document},
              both_ways, 0.03);
    }
}

TEST_CASE("attention over ranks: delays and another order of events change nothing") {
    const problem of{.missing = 2, .document = 13};
    const auto layer = latent<nn::context_latent_attention>(7, true);
    const auto other = grouped<nn::context_grouped_query_attention>(4, 2, true);
    for (const auto exchange : {all_gather, ring}) {
        const named quiet = together(layer, of, {2, 4, exchange}), quiet_other = together(other, of, {2, 4, exchange});
        for (std::uint64_t seed = 1; seed <= 3; ++seed) {
            const layout late{2, 4, exchange, false, {.seed = seed, .delay = 0.5, .reorder = 0.3}};
            CHECK(apart(together(layer, of, late), quiet) < 1e-13);
            CHECK(apart(together(other, of, late), quiet_other) < 1e-13);
        }
    }
}

TEST_CASE("attention over ranks: a batch that is cut for others is refused") {
    const auto message = [&](const nn::split_over context, const nn::context_share& cut) {
        return test::message_of([&] {
            comm::threads::run(2, [&](auto& mine) {
                const comm::mesh_links links{comm::link{mine}, {.cp = 2}};
                nn::micro_batch<double> batch;
                batch.shape = {2, 8};
                batch.ranks = &links;
                batch.context = cut;
                nn::detail::context_places{context, batch};
            });
        });
    };
    CHECK(message({2, 0}, {2, 0, 16, 0}) == "no error");
    CHECK(message({2, 0}, {2, 0, 16, 3})
              .find("context: found sequences of 8 places on rank 0, expected the 5 that it "
                    "has of 13") != std::string::npos);
    CHECK(message({4, 0}, {2, 0, 16, 0})
              .find("context: found a batch of rank 0 of 2 with links to 2, expected rank 0 "
                    "of the 4 that share sequences") != std::string::npos);
}

}  // namespace fathom
