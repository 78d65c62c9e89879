// Attention over caches and products by head against their definitions in double, and one set of bits for any workers.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fathom/ops/decode_attention.hpp>
#include <string>
#include <vector>

#include "../scratch_folder.hpp"
#include "numbers.hpp"

namespace fathom {
namespace {

using ops::attention_facts;
using test::numbers;

/// New tokens at the ends of panels of 512 keys and in between, in three sequences of at most 1100 tokens.
const std::vector<std::int32_t> sequences{0, 2, 1, 0, 2, 1}, positions{0, 511, 512, 1099, 1024, 37};
constexpr integer capacity = 1'100;

/// q, and a cache whose values are a part of each row: behind the keys, or the front part of a latent.
template <class T> struct problem {
    attention_facts facts;
    bool latent;
    numbers<T> q, cache, out;
    explicit problem(const attention_facts& sizes, bool is_latent)
        : facts(sizes),
          latent(is_latent),
          q(6, sizes.heads * sizes.qk_dim, 1, 2, 3),
          cache(3 * capacity, sizes.kv_heads * (is_latent ? sizes.qk_dim : sizes.qk_dim + sizes.v_dim), 2, 1, 5),
          out(6, sizes.heads * sizes.v_dim) {}
    ops::attention_cache<T> view() {
        const integer keys = latent ? 0 : facts.kv_heads * facts.qk_dim;
        return {.k = cache.view(),
                .k_head_stride = facts.qk_dim,
                .v = cache.view().columns_at(keys, facts.kv_heads * facts.v_dim),
                .v_head_stride = facts.v_dim,
                .capacity = capacity};
    }
    void attend(host::queue& queue) {
        ops::decode_attention<T>(queue, facts, q.view(), view(), sequences.data(), positions.data(), out.view());
    }
    numbers<double> defined() {
        numbers<double> expected(6, out.width);
        const auto cached = view();
        for (integer r = 0; r < 6; ++r)
            for (integer h = 0; h < facts.heads; ++h) {
                const integer kv = h / (facts.heads / facts.kv_heads),
                              origin = sequences[static_cast<std::size_t>(r)] * capacity;
                std::vector<double> weights;
                double sum = 0;
                for (integer j = 0; j <= positions[static_cast<std::size_t>(r)]; ++j) {
                    double score = 0;
                    for (integer c = 0; c < facts.qk_dim; ++c)
                        score += q(r, h * facts.qk_dim + c) *
                                 static_cast<double>(cached.k(origin + j, kv * cached.k_head_stride + c));
                    weights.push_back(std::exp(facts.scale * score));
                    sum += weights.back();
                }
                for (std::size_t j = 0; j < weights.size(); ++j)
                    for (integer c = 0; c < facts.v_dim; ++c)
                        expected.view()(r, h * facts.v_dim + c) +=
                            weights[j] / sum *
                            static_cast<double>(
                                cached.v(origin + static_cast<integer>(j), kv * cached.v_head_stride + c));
            }
        return expected;
    }
};

constexpr attention_facts grouped{.heads = 6, .kv_heads = 2, .qk_dim = 12, .v_dim = 10, .scale = 0.3};
constexpr attention_facts shared{.heads = 10, .kv_heads = 1, .qk_dim = 24, .v_dim = 16, .scale = 0.2};

template <class T> void matches_its_definition(double bound) {
    for (const bool latent : {false, true}) {
        problem<T> of{latent ? shared : grouped, latent};
        test::pool three{3, ops::decode_attention_scratch<T>(of.facts)};
        of.attend(three.queue);
        auto expected = of.defined();
        CHECK(test::distance(of.out, expected) <= bound);
        const auto bits = of.out.memory;
        test::pool one{1, ops::decode_attention_scratch<T>(of.facts)};
        std::fill(of.out.memory.begin(), of.out.memory.end(), T{});
        of.attend(one.queue);
        CHECK(test::same_bits(of.out.memory, bits));
    }
}

TEST_CASE("decode_attention: double") { matches_its_definition<double>(1e-13); }
TEST_CASE("decode_attention: float") { matches_its_definition<float>(4e-6); }
TEST_CASE("decode_attention: bf16") { matches_its_definition<bf16>(1e-2); }

TEST_CASE("decode_attention: scratch does not grow with the text, and large scores stay finite") {
    problem<float> of{shared, true};
    for (float& x : of.q.memory) x *= 1e4f;
    test::pool pool{2, ops::decode_attention_scratch<float>(shared)};
    of.attend(pool.queue);
    for (const float x : of.out.memory) CHECK(std::isfinite(x));
    // One head has one task and little scratch; a group of 128 has more, but no more than 64 heads' worth.
    CHECK(ops::decode_attention_scratch<float>({.heads = 128, .kv_heads = 1, .qk_dim = 576, .v_dim = 512}) < 400 << 10);
}

TEST_CASE("decode_attention: what does not fit is refused") {
    problem<float> of{grouped, false};
    test::pool pool{1, ops::decode_attention_scratch<float>(grouped)};
    const auto attempt = [&](std::vector<std::int32_t> where, std::vector<std::int32_t> at, matrix<float> out) {
        return test::message_of([&] {
            ops::decode_attention<float>(pool.queue, grouped, of.q.view(), of.view(), where.data(), at.data(), out);
        });
    };
    auto late = positions, far = sequences;
    late[4] = capacity;
    far[3] = 3;
    CHECK(attempt(sequences, late, of.out.view()) ==
          "decode_attention: found token 1100 of sequence 2, expected one of 1100 tokens of 3 sequences");
    CHECK(attempt(far, positions, of.out.view()).find("of sequence 3") != std::string::npos);
    CHECK(attempt(sequences, positions, of.out.view().columns_at(0, 59)).find("6 x 59") != std::string::npos);
}

/// Products of three heads in formats Y, X and W, their weights `step` rows apart.
template <class Y, class X, class W> void multiplies_by_head(integer n, integer k, double bound) {
    constexpr integer heads = 3, rows = 5;
    test::pool pool{2, ops::product_scratch<W>()};
    numbers<X> x(rows, heads * (k + 2), 3);
    for (const bool transposed : {false, true}) {
        const integer tall = transposed ? n : k, step = tall + 4;
        numbers<W> w(heads * step, transposed ? k : n, 4);
        numbers<Y> y(rows, heads * (n + 1));
        numbers<double> expected(rows, heads * (n + 1));
        for (integer h = 0; h < heads; ++h)
            for (integer r = 0; r < rows; ++r)
                for (integer i = 0; i < n; ++i)
                    for (integer j = 0; j < k; ++j)
                        expected.view()(r, h * (n + 1) + i) +=
                            x(r, h * (k + 2) + j) * (transposed ? w(h * step + i, j) : w(h * step + j, i));
        ops::heads_product(pool.queue, heads, y.view().columns_at(0, n), n + 1, x.view().columns_at(0, k), k + 2,
                           transposed ? ops::side::transposed : ops::side::plain, w.view().rows_at(0, tall), step);
        CHECK(test::distance(y, expected) <= bound);
    }
}

TEST_CASE("heads_product: every head meets its own weights, in any format") {
    multiplies_by_head<double, double, double>(20, 7, 1e-14);
    multiplies_by_head<float, float, float>(300, 40, 2e-6);
    multiplies_by_head<float, bf16, bf16>(300, 270, 4e-6);
    multiplies_by_head<bf16, float, bf16>(20, 300, 1e-2);
    numbers<float> y(2, 8), x(2, 8, 1), w(8, 8, 1);
    test::pool pool{1, ops::product_scratch<float>()};
    CHECK(test::message_of([&] {
              ops::heads_product(pool.queue, 1, y.view(), 0, x.view(), 0, ops::side::plain, w.view().rows_at(0, 7), 0);
          }).find("heads_product: found result 2 x 8") != std::string::npos);
}

}  // namespace
}  // namespace fathom
