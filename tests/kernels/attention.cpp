#include <doctest/doctest.h>

#include <cstdint>
#include <fathom/device/simulated/launch.hpp>
#include <fathom/ops/attention.hpp>
#include <fathom/ops/attention/backward_kernel.hpp>
#include <fathom/ops/attention/kernel.hpp>
#include <vector>

#include "../unit/ops/numbers.hpp"

namespace fathom::test {

namespace {

/// One problem with the operands of latent attention, or of grouped queries where nothing is shared.
struct problem {
    ops::attention_facts facts;
    integer sequences, length, tokens = sequences * length, own = facts.qk_dim - facts.shared_dim;
    integer kv_stride = own + facts.v_dim;
    numbers<bf16> q{tokens, facts.heads*facts.qk_dim, 1}, kv{tokens, facts.kv_heads*kv_stride, 2};
    numbers<bf16> shared{tokens, facts.shared_dim, 3}, dout{tokens, facts.heads*facts.v_dim, 4};
    numbers<bf16> out{tokens, facts.heads* facts.v_dim};
    numbers<float> logsumexp{facts.heads, tokens};
    std::vector<std::int32_t> starts;

    /// Documents of `document` tokens.
    problem(const ops::attention_facts& of, integer sequence_count, integer sequence_length, integer document)
        : facts(of), sequences(sequence_count), length(sequence_length) {
        for (integer t = 0; t < tokens; ++t)
            starts.push_back(static_cast<std::int32_t>(t % length / document * document));
    }
    ops::attention_operands<const bf16> operands() {
        const matrix<const bf16> all{kv.view()};
        return {.q = q.view(),
                .k = all,
                .k_head_stride = kv_stride,
                .shared = shared.view(),
                .v = all.columns_at(own, all.width - own),
                .v_head_stride = kv_stride};
    }
    ops::detail::attention::kernel_facts of() const { return {facts, length, kv_stride, kv_stride}; }
    matrix<const std::int32_t> starts_view() { return vector_view<const std::int32_t>(starts.data(), tokens); }
};

struct head_sizes {
    ops::attention_facts facts;
    integer sequences, length, document;
};

constexpr ops::attention_facts latent{
    .heads = 2, .kv_heads = 2, .qk_dim = 192, .v_dim = 128, .shared_dim = 64, .scale = 0.07};
constexpr ops::attention_facts grouped{.heads = 4, .kv_heads = 2, .qk_dim = 128, .v_dim = 128, .scale = 0.09};
constexpr ops::attention_facts narrow{.heads = 2, .kv_heads = 1, .qk_dim = 64, .v_dim = 64, .scale = 0.125};

template <int QkDim, int VDim> void check_forward(const head_sizes& sizes) {
    problem at(sizes.facts, sizes.sequences, sizes.length, sizes.document);
    pool p(1, ops::attention_scratch<bf16>(at.facts, at.length));
    ops::attention_forward(p.queue, at.facts, at.sequences, at.length, at.operands(), at.starts.data(), at.out.view(),
                           at.logsumexp.view());
    numbers<bf16> out(at.tokens, at.out.width);
    numbers<float> logsumexp(at.facts.heads, at.tokens);
    const ops::attention_forward_kernel<QkDim, VDim> kernel{at.of()};
    REQUIRE(kernel.takes());
    const auto in = at.operands();
    simulated::launch(kernel, kernel.blocks(at.sequences), out.view(), logsumexp.view(), in.q, in.k, in.shared, in.v,
                      at.starts_view());
    CHECK(distance(out, at.out) < tolerance<bf16>);
    CHECK(distance(logsumexp, at.logsumexp) < 1e-5);
}

/// What a backward writes.
struct slopes {
    numbers<bf16> q, kv, shared;
    numbers<float> parts;
    explicit slopes(const problem& at)
        : q(at.tokens, at.q.width),
          kv(at.tokens, at.kv.width),
          shared(at.tokens, at.facts.shared_dim),
          parts(at.tokens, at.facts.kv_heads * at.facts.shared_dim) {}
};

template <int QkDim, int VDim> void check_backward(const head_sizes& sizes) {
    problem at(sizes.facts, sizes.sequences, sizes.length, sizes.document);
    pool p(1, ops::attention_scratch<bf16>(at.facts, at.length));
    ops::attention_forward(p.queue, at.facts, at.sequences, at.length, at.operands(), at.starts.data(), at.out.view(),
                           at.logsumexp.view());
    slopes host(at), found(at);
    const matrix<bf16> all = host.kv.view();
    ops::attention_backward(p.queue, at.facts, at.sequences, at.length, at.operands(), at.starts.data(), at.out.view(),
                            matrix<const float>{at.logsumexp.view()}, at.dout.view(),
                            ops::attention_operands<bf16>{.q = host.q.view(),
                                                          .k = all,
                                                          .k_head_stride = at.kv_stride,
                                                          .shared = host.shared.view(),
                                                          .v = all.columns_at(at.own, all.width - at.own),
                                                          .v_head_stride = at.kv_stride},
                            host.parts.view());
    numbers<float> means(at.facts.heads, at.tokens);
    const auto in = at.operands();
    const matrix<const bf16> dout = at.dout.view();
    const matrix<const float> logsumexp = at.logsumexp.view(), means_view = means.view();
    const matrix<bf16> dkv = found.kv.view();
    const ops::attention_keys_backward_kernel<QkDim, VDim> keys{at.of()};
    const ops::attention_queries_backward_kernel<QkDim, VDim> queries{at.of()};
    REQUIRE((keys.takes() && queries.takes()));
    simulated::launch(ops::attention_means_kernel{}, ops::attention_means_kernel::blocks(at.tokens, at.facts.heads),
                      means.view(), matrix<const bf16>{at.out.view()}, dout);
    simulated::launch(keys, keys.blocks(at.sequences), dkv, found.parts.view(),
                      dkv.columns_at(at.own, dkv.width - at.own), in.q, in.k, in.shared, in.v, dout, logsumexp,
                      means_view, at.starts_view());
    simulated::launch(queries, queries.blocks(at.sequences), found.q.view(), in.q, in.k, in.shared, in.v, dout,
                      logsumexp, means_view, at.starts_view());
    simulated::launch(ops::attention_shared_kernel{}, at.facts.shared_dim > 0 ? at.tokens : 0, found.shared.view(),
                      matrix<const float>{found.parts.view()});
    CHECK(distance(found.q, host.q) < tolerance<bf16>);
    CHECK(distance(found.kv, host.kv) < tolerance<bf16>);
    CHECK(distance(found.shared, host.shared) < tolerance<bf16>);
}

}  // namespace

TEST_CASE("the kernel of attention's forward equals the host") {
    SUBCASE("latent, one token") { check_forward<192, 128>({latent, 1, 1, 1}); }
    SUBCASE("latent, several tiles") { check_forward<192, 128>({latent, 1, 150, 150}); }
    SUBCASE("latent, documents") { check_forward<192, 128>({latent, 2, 70, 13}); }
    SUBCASE("grouped queries") { check_forward<128, 128>({grouped, 1, 129, 129}); }
    SUBCASE("grouped queries, documents") { check_forward<128, 128>({grouped, 2, 66, 65}); }
    SUBCASE("narrow heads") { check_forward<64, 64>({narrow, 3, 33, 20}); }
}

TEST_CASE("the kernels of attention's backward equal the host") {
    SUBCASE("latent, one token") { check_backward<192, 128>({latent, 1, 1, 1}); }
    SUBCASE("latent, several tiles") { check_backward<192, 128>({latent, 1, 150, 150}); }
    SUBCASE("latent, documents") { check_backward<192, 128>({latent, 2, 70, 13}); }
    SUBCASE("grouped queries") { check_backward<128, 128>({grouped, 1, 129, 129}); }
    SUBCASE("grouped queries, documents") { check_backward<128, 128>({grouped, 2, 66, 65}); }
    SUBCASE("narrow heads") { check_backward<64, 64>({narrow, 3, 33, 20}); }
}

}  // namespace fathom::test
