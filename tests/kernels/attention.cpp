#include <doctest/doctest.h>

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

/// What a backward writes.
template <class T> struct slopes {
    numbers<T> q, kv, shared;
    numbers<accumulator_t<T>> parts;
    explicit slopes(const problem<T>& at)
        : q(at.tokens, at.q.width),
          kv(at.tokens, at.kv.width),
          shared(at.tokens, at.facts.shared_dim),
          parts(at.tokens, at.facts.kv_heads * at.facts.shared_dim) {}
};

/// Forward and backward of the kernels against the host, within `near`.
template <class T, class Forward, class Keys, class Queries> void check(const sizes& of, double near) {
    using A = accumulator_t<T>;
    problem<T> at(of);
    pool p(1, ops::attention_scratch<T>(at.facts, at.length));
    const auto in = at.operands();
    const matrix<const T> dout = at.dout.view();
    ops::attention_forward(p.queue, at.facts, at.sequences, at.length, in, at.starts.data(), at.out.view(),
                           at.logsumexp.view());
    slopes<T> host(at), found(at);
    ops::attention_backward(p.queue, at.facts, at.sequences, at.length, in, at.starts.data(), at.out.view(),
                            matrix<const A>{at.logsumexp.view()}, dout,
                            at.template operands<T>(host.q.view(), host.kv.view(), host.shared.view()),
                            host.parts.view());

    numbers<T> out(at.tokens, at.out.width);
    numbers<A> logsumexp(at.facts.heads, at.tokens), means(at.facts.heads, at.tokens);
    const Forward forward{at.of()};
    const Keys keys{at.of()};
    const Queries queries{at.of()};
    REQUIRE((forward.takes() && keys.takes() && queries.takes()));
    launch(forward, forward.blocks(at.sequences), out.view(), logsumexp.view(), in.q, in.k, in.shared, in.v,
           at.starts_view());
    CHECK(distance(out, at.out) < near);
    CHECK(distance(logsumexp, at.logsumexp) < near / 10);

    const auto to = at.template operands<T>(found.q.view(), found.kv.view(), found.shared.view());
    const matrix<const A> above = at.logsumexp.view(), mean = means.view();
    using of_means = ops::attention_means_kernel<T>;
    using of_shared = ops::attention_shared_kernel<T>;
    launch(of_means{}, of_means::blocks(at.tokens, at.facts.heads), means.view(), matrix<const T>{at.out.view()}, dout);
    launch(keys, keys.blocks(at.sequences), to.k, found.parts.view(), to.v, in.q, in.k, in.shared, in.v, dout, above,
           mean, at.starts_view());
    launch(queries, queries.blocks(at.sequences), to.q, in.q, in.k, in.shared, in.v, dout, above, mean,
           at.starts_view());
    if (at.facts.shared_dim > 0)
        launch(of_shared{}, of_shared::blocks(at.tokens), to.shared, matrix<const A>{found.parts.view()});
    CHECK(distance(found.q, host.q) < near);
    CHECK(distance(found.kv, host.kv) < near);
    CHECK(distance(found.shared, host.shared) < near);
}

template <int QkDim, int VDim> void check_tiles(const sizes& of) {
    check<bf16, ops::attention_forward_kernel<QkDim, VDim>, ops::attention_keys_backward_kernel<QkDim, VDim>,
          ops::attention_queries_backward_kernel<QkDim, VDim>>(of, tolerance<bf16>);
}
template <class T, int QkDim, int VDim> void check_plain(const sizes& of) {
    check<T, ops::attention_plain_forward_kernel<T, QkDim, VDim>,
          ops::attention_plain_keys_backward_kernel<T, QkDim, VDim>,
          ops::attention_plain_queries_backward_kernel<T, QkDim, VDim>>(of, 10 * tolerance<T>);
}

constexpr ops::attention_facts latent{
    .heads = 2, .kv_heads = 2, .qk_dim = 192, .v_dim = 128, .shared_dim = 64, .scale = 0.07};
constexpr ops::attention_facts grouped{.heads = 4, .kv_heads = 2, .qk_dim = 128, .v_dim = 128, .scale = 0.09};
constexpr ops::attention_facts narrow{.heads = 2, .kv_heads = 1, .qk_dim = 64, .v_dim = 64, .scale = 0.125};

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
    SUBCASE("latent") { check_plain<T, 192, 128>({latent, 2, 19, 8}); }
    SUBCASE("narrow heads") { check_plain<T, 64, 64>({narrow, 1, 33, 33}); }
}

TEST_CASE("the kernels of attention refuse facts that they cannot work with") {
    ops::attention_facts odd = latent;
    odd.shared_dim = 60;
    CHECK_FALSE(ops::attention_forward_kernel<192, 128>{{odd, 8, 256, 256}}.takes());
    CHECK_FALSE(ops::attention_forward_kernel<128, 128>{{latent, 8, 256, 256}}.takes());
    CHECK_FALSE(ops::attention_forward_kernel<192, 128>{{latent, 8, 257, 256}}.takes());
    CHECK_FALSE(ops::attention_plain_forward_kernel<float, 128, 128>{{latent, 8, 256, 256}}.takes());
}

TEST_CASE("the kernels of attention end at a document that starts after its token" * doctest::test_suite("simulated")) {
    problem<bf16> at({narrow, 1, 3, 3});
    at.starts[1] = 2;
    const auto in = at.operands();
    const ops::attention_forward_kernel<64, 64> tiles{at.of()};
    const ops::attention_plain_forward_kernel<bf16, 64, 64> plain{at.of()};
    CHECK_THROWS_AS(launch(tiles, tiles.blocks(1), at.out.view(), at.logsumexp.view(), in.q, in.k, in.shared, in.v,
                           at.starts_view()),
                    error);
    CHECK_THROWS_WITH_AS(launch(plain, plain.blocks(1), at.out.view(), at.logsumexp.view(), in.q, in.k, in.shared, in.v,
                                at.starts_view()),
                         "kernel attention_plain_forward, block 0, thread 64: a document that starts after its token",
                         error);
}

}  // namespace fathom::test
