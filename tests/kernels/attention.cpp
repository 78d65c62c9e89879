#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fathom/ops/attention.hpp>
#include <fathom/ops/attention/around_kernel.hpp>
#include <fathom/ops/attention/backward_kernel.hpp>
#include <fathom/ops/attention/kernel.hpp>
#include <fathom/ops/attention/plain_kernel.hpp>
#include <vector>

#include "../unit/ops/numbers.hpp"
#include "launch.hpp"

namespace fathom::test {

namespace {

using ops::detail::attention::held_runs;

/// Sequences of documents, with the operands of latent attention, or of grouped queries where nothing is shared.
struct sizes {
    ops::attention_facts facts;
    integer sequences, length, document;
};

template <class T> struct problem {
    using A = accumulator_t<T>;
    ops::attention_facts facts;
    integer sequences, length, tokens = sequences * length, own = facts.qk_dim - facts.shared_dim;
    integer kv_stride = own + facts.v_dim;
    numbers<T> q{tokens, facts.heads*facts.qk_dim, 1}, kv{tokens, facts.kv_heads*kv_stride, 2};
    numbers<T> shared{tokens, facts.shared_dim, 3}, dout{tokens, facts.heads*facts.v_dim, 4};
    numbers<T> out{tokens, facts.heads* facts.v_dim};
    numbers<A> logsumexp{facts.heads, tokens};
    std::vector<std::int32_t> starts;

    explicit problem(const sizes& of) : facts(of.facts), sequences(of.sequences), length(of.length) {
        for (integer t = 0; t < tokens; ++t)
            starts.push_back(static_cast<std::int32_t>(t % length / of.document * of.document));
    }
    template <class N>
    ops::attention_operands<N> operands(matrix<N> queries, matrix<N> all, matrix<N> shared_keys) const {
        return {.q = queries,
                .k = all,
                .k_head_stride = kv_stride,
                .shared = shared_keys,
                .v = all.columns_at(own, all.width - own),
                .v_head_stride = kv_stride};
    }
    ops::attention_operands<const T> operands() { return operands<const T>(q.view(), kv.view(), shared.view()); }
    ops::detail::attention::kernel_facts of() const { return {facts, length, kv_stride, kv_stride}; }
    matrix<const std::int32_t> starts_view() { return vector_view<const std::int32_t>(starts.data(), tokens); }
};

/// What a backward writes, in G.
template <class T, class G = T> struct slopes {
    numbers<G> q, kv, shared;
    numbers<accumulator_t<T>> parts;
    explicit slopes(const problem<T>& at)
        : q(at.tokens, at.q.width, 6),
          kv(at.tokens, at.kv.width, 7),
          shared(at.tokens, at.facts.shared_dim, 8),
          parts(at.tokens, at.facts.kv_heads * at.facts.shared_dim) {}
    ops::attention_gradients<G> operands(const problem<T>& at) {
        return at.template operands<G>(q.view(), kv.view(), shared.view());
    }
};

template <class T, class G> double distance(slopes<T, G>& found, slopes<T, G>& expected) {
    return std::max(
        {distance(found.q, expected.q), distance(found.kv, expected.kv), distance(found.shared, expected.shared)});
}

/// The kernels on tensor cores, forward and backward, against the host.
template <int QkDim, int VDim> void check_tiles(const sizes& of) {
    problem<bf16> at(of);
    pool p(1, ops::attention_scratch<bf16>(at.facts, at.length));
    const auto in = at.operands();
    const matrix<const bf16> dout = at.dout.view();
    ops::attention_forward(p.queue, at.facts, at.sequences, at.length, in, at.starts.data(), at.out.view(),
                           at.logsumexp.view());
    slopes<bf16> host(at), found(at);
    const matrix<const float> above = at.logsumexp.view();
    ops::attention_backward(p.queue, at.facts, at.sequences, at.length, in, at.starts.data(), at.out.view(), above,
                            dout, host.operands(at), host.parts.view());

    numbers<bf16> out(at.tokens, at.out.width);
    numbers<float> logsumexp(at.facts.heads, at.tokens), means(at.facts.heads, at.tokens);
    const ops::attention_forward_kernel<QkDim, VDim> forward{at.of()};
    const ops::attention_keys_backward_kernel<QkDim, VDim> keys{at.of()};
    const ops::attention_queries_backward_kernel<QkDim, VDim> queries{at.of()};
    REQUIRE((forward.takes() && keys.takes() && queries.takes()));
    launch(forward, forward.blocks(at.sequences), out.view(), logsumexp.view(), in.q, in.k, in.shared, in.v,
           at.starts_view());
    CHECK(distance(out, at.out) < tolerance<bf16>);
    CHECK(distance(logsumexp, at.logsumexp) < tolerance<bf16> / 10);

    const auto to = found.operands(at);
    const matrix<const float> mean = means.view();
    using of_means = ops::attention_means_kernel<bf16>;
    launch(of_means{}, of_means::blocks(at.tokens, at.facts.heads), means.view(), matrix<const bf16>{at.out.view()},
           dout);
    launch(keys, keys.blocks(at.sequences), to.k, found.parts.view(), to.v, in.q, in.k, in.shared, in.v, dout, above,
           mean, at.starts_view());
    launch(queries, queries.blocks(at.sequences), to.q, in.q, in.k, in.shared, in.v, dout, above, mean,
           at.starts_view());
    if (at.facts.shared_dim > 0) {
        const ops::place_run whole{.count = at.length, .step = at.length};
        const ops::attention_shared_kernel<bf16> of_shared{held_runs({&whole, 1})};
        launch(of_shared, of_shared.blocks(at.sequences), to.shared, matrix<const float>{found.parts.view()}, false);
    }
    CHECK(distance(found, host) < tolerance<bf16>);
}

using runs = std::vector<ops::place_run>;

/// The plain kernels, with results and gradients in Sum, against the host: attention of the places `queries` to those
/// of keys[0], then also of keys[1], and so on.
template <class T, class Sum> void check_plain(const sizes& of, const runs& queries, const std::vector<runs>& keys) {
    using A = accumulator_t<T>;
    constexpr double near = 10 * tolerance<Sum>;
    problem<T> at(of);
    pool p(1, ops::attention_scratch<T>(at.facts, at.length));
    for (const ops::place_run& run : queries)
        for (integer s = 0; s < at.sequences; ++s)
            for (integer i = 0; i < run.count; ++i)
                at.starts[run.row_of(s) + i] = static_cast<std::int32_t>((run.place + i) / of.document * of.document);
    auto in = at.operands();
    in.q = in.q.rows_at(0, at.sequences * held_runs(queries).places);
    const matrix<const T> dout = at.dout.view();
    numbers<Sum> host_out(at.tokens, at.out.width, 5), out = host_out;
    numbers<A> host_above(at.facts.heads, at.tokens), above = host_above, means = host_above;
    const auto facts_of = [&](const runs& some) {
        return ops::detail::attention::plain_facts{at.facts,     at.sequences, held_runs(queries), held_runs(some),
                                                   at.kv_stride, at.kv_stride, at.kv_stride,       at.kv_stride};
    };
    for (std::size_t i = 0; i < keys.size(); ++i) {
        ops::attention_forward<T>(p.queue, at.facts, at.sequences, queries, keys[i], in, at.starts.data(),
                                  host_out.view(), host_above.view(), i > 0);
        const ops::attention_plain_forward_kernel<T, Sum> forward{facts_of(keys[i])};
        launch(forward, forward.blocks(), out.view(), above.view(), in.q, in.k, in.shared, in.v, at.starts_view(),
               i > 0);
        CHECK(distance(out, host_out) < near);
        auto weight = above, host_weight = host_above;  // of a query that has seen no key, 0
        for (A& x : weight.memory) x = std::exp(x);
        for (A& x : host_weight.memory) x = std::exp(x);
        CHECK(distance(weight, host_weight) < near);
    }
    for (std::size_t i = 0; i < out.memory.size(); ++i) at.out.memory[i] = static_cast<T>(host_out.memory[i]);

    slopes<T, Sum> host(at), found(at);
    const auto to = found.operands(at);
    const matrix<const A> lse = host_above.view(), mean = means.view();
    using of_means = ops::attention_means_kernel<T>;
    launch(of_means{}, of_means::blocks(at.tokens, at.facts.heads), means.view(), matrix<const T>{at.out.view()}, dout);
    for (std::size_t i = 0; i < keys.size(); ++i) {
        const bool accumulate = i > 0;
        ops::attention_backward<T>(p.queue, at.facts, at.sequences, queries, keys[i], in, at.starts.data(),
                                   at.out.view(), lse, dout, host.operands(at), host.parts.view(), accumulate);
        const auto facts = facts_of(keys[i]);
        const ops::attention_plain_keys_backward_kernel<T, Sum> of_keys{facts};
        const ops::attention_plain_queries_backward_kernel<T, Sum> of_queries{facts};
        const ops::attention_shared_kernel<Sum> of_shared{facts.keys};
        launch(of_keys, of_keys.blocks(), to.k, found.parts.view(), to.v, in.q, in.k, in.shared, in.v, dout, lse, mean,
               at.starts_view(), accumulate);
        launch(of_queries, of_queries.blocks(), to.q, in.q, in.k, in.shared, in.v, dout, lse, mean, at.starts_view(),
               accumulate);
        if (at.facts.shared_dim > 0)
            launch(of_shared, of_shared.blocks(at.sequences), to.shared, matrix<const A>{found.parts.view()},
                   accumulate);
        CHECK(distance(found, host) < near);
    }
}

/// Whole sequences.
template <class T> void check_plain(const sizes& of) {
    const runs whole{{.count = of.length, .step = of.length}};
    check_plain<T, T>(of, whole, {whole});
}

constexpr ops::attention_facts latent{
    .heads = 2, .kv_heads = 2, .qk_dim = 192, .v_dim = 128, .shared_dim = 64, .scale = 0.07};
constexpr ops::attention_facts grouped{.heads = 4, .kv_heads = 2, .qk_dim = 128, .v_dim = 128, .scale = 0.09};
constexpr ops::attention_facts narrow{.heads = 2, .kv_heads = 1, .qk_dim = 64, .v_dim = 64, .scale = 0.125};
constexpr ops::attention_facts tiny{
    .heads = 3, .kv_heads = 3, .qk_dim = 24, .v_dim = 16, .shared_dim = 8, .scale = 0.2};
constexpr ops::attention_facts odd{.heads = 4, .kv_heads = 2, .qk_dim = 10, .v_dim = 37, .shared_dim = 3, .scale = 0.3};

}  // namespace

TEST_CASE("the kernels of attention on tensor cores equal the host") {
    SUBCASE("latent, one token") { check_tiles<192, 128>({latent, 1, 1, 1}); }
    SUBCASE("latent, several tiles") { check_tiles<192, 128>({latent, 1, 150, 150}); }
    SUBCASE("latent, documents") { check_tiles<192, 128>({latent, 2, 70, 13}); }
    SUBCASE("grouped queries") { check_tiles<128, 128>({grouped, 1, 129, 129}); }
    SUBCASE("grouped queries, documents") { check_tiles<128, 128>({grouped, 2, 66, 65}); }
    SUBCASE("narrow heads") { check_tiles<64, 64>({narrow, 3, 33, 20}); }
}

TEST_CASE_TEMPLATE("the plain kernels of attention equal the host", T, double, float, bf16) {
    SUBCASE("latent") { check_plain<T>({latent, 2, 19, 8}); }
    SUBCASE("narrow heads") { check_plain<T>({narrow, 1, 33, 33}); }
    SUBCASE("tiny heads, one token") { check_plain<T>({tiny, 1, 1, 1}); }
    SUBCASE("tiny heads, documents") { check_plain<T>({tiny, 3, 21, 6}); }
    SUBCASE("heads of widths that are no multiple of anything") { check_plain<T>({odd, 2, 17, 17}); }
    SUBCASE("no sequences") { check_plain<T>({tiny, 0, 8, 8}); }
}

TEST_CASE_TEMPLATE("the plain kernels of attention over parts of sequences equal the host", T, double, float, bf16) {
    using A = accumulator_t<T>;
    // Of 12 places, this rank has two chunks of 3, one after the other in its rows, of which the last ends early; the
    // keys come in two parts, of which the first has none for some queries.
    const runs queries{{.place = 0, .count = 3, .row = 0, .step = 5}, {.place = 9, .count = 2, .row = 3, .step = 5}};
    const runs late{{.place = 3, .count = 3, .row = 1, .step = 6}, {.place = 6, .count = 3, .row = 4, .step = 6}};
    const runs early{{.place = 0, .count = 3, .row = 2, .step = 5}, {.place = 9, .count = 2, .row = 5, .step = 5}};
    for (const integer document : {11, 4}) {
        check_plain<T, A>({tiny, 2, 12, document}, queries, {late, early});
        check_plain<T, T>({odd, 2, 12, document}, queries, {early, late});
    }
}

TEST_CASE("the kernels of attention refuse facts that they cannot work with") {
    ops::attention_facts unaligned = latent;
    unaligned.shared_dim = 60;
    CHECK_FALSE(ops::attention_forward_kernel<192, 128>{{unaligned, 8, 256, 256}}.takes());
    CHECK_FALSE(ops::attention_forward_kernel<128, 128>{{latent, 8, 256, 256}}.takes());
    CHECK_FALSE(ops::attention_forward_kernel<192, 128>{{latent, 8, 257, 256}}.takes());
    const runs many(65, ops::place_run{.count = 1, .step = 65});
    CHECK_THROWS_WITH_AS(held_runs{many},
                         "attention: found sequences in 65 runs, expected at most the 64 that kernels take", error);
}

TEST_CASE("the kernels of attention end at a document that starts after its token" * doctest::test_suite("simulated")) {
    problem<bf16> at({narrow, 1, 3, 3});
    at.starts[1] = 2;
    const auto in = at.operands();
    const ops::attention_forward_kernel<64, 64> tiles{at.of()};
    const ops::place_run three{.count = 3, .step = 3};
    const held_runs whole({&three, 1});
    const ops::attention_plain_forward_kernel<bf16> plain{
        {at.facts, 1, whole, whole, at.kv_stride, at.kv_stride, at.kv_stride, at.kv_stride}};
    CHECK_THROWS_AS(launch(tiles, tiles.blocks(1), at.out.view(), at.logsumexp.view(), in.q, in.k, in.shared, in.v,
                           at.starts_view()),
                    error);
    CHECK_THROWS_WITH_AS(launch(plain, plain.blocks(), at.out.view(), at.logsumexp.view(), in.q, in.k, in.shared, in.v,
                                at.starts_view(), false),
                         "kernel attention_plain_forward, block 0, thread 64: a document that starts after its token",
                         error);
}

}  // namespace fathom::test
