// Attention against its definition in double, its backward against differences, and one set of bits for any workers.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fathom/core/random_stream.hpp>
#include <fathom/ops/attention.hpp>
#include <limits>
#include <vector>

namespace fathom {
namespace {

using ops::attention_facts;

template <class T> using numbers = std::vector<T>;
std::size_t unsign(integer n) { return static_cast<std::size_t>(n); }
template <class T> double wide(T x) { return static_cast<double>(static_cast<accumulator_t<T>>(x)); }

struct host_rank {
    host_rank(int workers, integer scratch_bytes)
        : pool(workers), scratch(unsign(workers * scratch_bytes + 64)), queue(pool, aligned(), scratch_bytes) {}
    std::byte* aligned() { return scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64) % 64; }
    host::workers pool;
    std::vector<std::byte> scratch;
    host::queue queue;
};

/// One problem: sizes, documents, and everything that attention reads and writes, in T.
template <class T> struct problem {
    using A = accumulator_t<T>;
    attention_facts facts;
    integer sequences, length, tokens, own, kv_width;
    numbers<std::int32_t> starts;
    numbers<T> q, kv, shared, out, dout, dq, dkv, dshared;
    numbers<A> logsumexp, shared_parts;

    /// Documents of `document` tokens; 0: one a sequence.
    problem(attention_facts sizes, integer sequence_count, integer sequence_length, integer document)
        : facts(sizes),
          sequences(sequence_count),
          length(sequence_length),
          tokens(sequences * length),
          own(facts.qk_dim - facts.shared_dim),
          kv_width(facts.kv_heads * (own + facts.v_dim)) {
        for (integer t = 0; t < tokens; ++t)
            starts.push_back(static_cast<std::int32_t>(document == 0 ? 0 : t % length / document * document));
        auto noise = [stream = std::uint64_t{0}](integer count) mutable {
            numbers<T> x;
            for (integer i = 0; i < count; ++i)
                x.push_back(
                    static_cast<T>(static_cast<float>(random_stream{3, stream}.normal(static_cast<std::uint64_t>(i)))));
            ++stream;
            return x;
        };
        q = noise(tokens * facts.heads * facts.qk_dim);
        kv = noise(tokens * kv_width);
        shared = noise(tokens * facts.shared_dim);
        dout = noise(tokens * facts.heads * facts.v_dim);
        const auto spoilt = [](std::size_t count) { return numbers<T>(count, static_cast<T>(std::nanf(""))); };
        out = spoilt(dout.size());
        dq = spoilt(q.size());
        dkv = spoilt(kv.size());
        dshared = spoilt(shared.size());
        logsumexp.assign(unsign(facts.heads * tokens), std::numeric_limits<A>::quiet_NaN());
        shared_parts.assign(unsign(tokens * facts.kv_heads * facts.shared_dim), std::numeric_limits<A>::quiet_NaN());
    }

    template <class N> ops::attention_operands<N> operands(N* queries, N* keys_values, N* shared_keys) const {
        const matrix<N> all{keys_values, tokens, kv_width};
        return {.q = {queries, tokens, facts.heads * facts.qk_dim},
                .k = all,
                .k_head_stride = own + facts.v_dim,
                .shared = {shared_keys, tokens, facts.shared_dim},
                .v = all.columns_at(own, kv_width - own),
                .v_head_stride = own + facts.v_dim};
    }
    void forward(host::queue& queue) {
        ops::attention_forward(queue, facts, sequences, length, operands<const T>(q.data(), kv.data(), shared.data()),
                               starts.data(), matrix<T>{out.data(), tokens, facts.heads * facts.v_dim},
                               {logsumexp.data(), facts.heads, tokens});
    }
    void backward(host::queue& queue) {
        ops::attention_backward(
            queue, facts, sequences, length, operands<const T>(q.data(), kv.data(), shared.data()), starts.data(),
            {out.data(), tokens, facts.heads * facts.v_dim}, {logsumexp.data(), facts.heads, tokens},
            {dout.data(), tokens, facts.heads * facts.v_dim}, operands<T>(dq.data(), dkv.data(), dshared.data()),
            {shared_parts.data(), tokens, facts.kv_heads * facts.shared_dim});
    }
    void run(int workers) {
        host_rank rank(workers, ops::attention_scratch<T>(facts, length));
        forward(rank.queue);
        backward(rank.queue);
    }

    /// Number c of the key and of the value of token t for query head h.
    std::size_t key_place(integer t, integer h, integer c) const {
        return unsign(t * kv_width + h / (facts.heads / facts.kv_heads) * (own + facts.v_dim) + c);
    }
    std::size_t value_place(integer t, integer h, integer c) const { return key_place(t, h, own + c); }
    double key(integer t, integer h, integer c) const {
        return c < own ? wide(kv[key_place(t, h, c)]) : wide(shared[unsign(t * facts.shared_dim + c - own)]);
    }
};

/// What the definition gives, in double.
struct expected {
    numbers<double> out, logsumexp, dq, dkv, dshared;

    template <class T> explicit expected(const problem<T>& at) {
        const attention_facts& f = at.facts;
        out.resize(at.out.size()), logsumexp.resize(at.logsumexp.size());
        dq.resize(at.q.size()), dkv.resize(at.kv.size()), dshared.resize(at.shared.size());
        for (integer t = 0; t < at.tokens; ++t)
            for (integer h = 0; h < f.heads; ++h) {
                const integer first = t / at.length * at.length + at.starts[unsign(t)];
                const auto q_place = [&](integer c) { return unsign((t * f.heads + h) * f.qk_dim + c); };
                const auto out_place = [&](integer c) { return unsign((t * f.heads + h) * f.v_dim + c); };
                numbers<double> weight, gradient;
                double sum = 0, mean = 0;
                for (integer j = first; j <= t; ++j) {
                    double score = 0, towards = 0;
                    for (integer c = 0; c < f.qk_dim; ++c) score += wide(at.q[q_place(c)]) * at.key(j, h, c);
                    for (integer c = 0; c < f.v_dim; ++c)
                        towards += wide(at.dout[out_place(c)]) * wide(at.kv[at.value_place(j, h, c)]);
                    weight.push_back(std::exp(score * f.scale));
                    gradient.push_back(towards);
                    sum += weight.back();
                }
                logsumexp[unsign(h * at.tokens + t)] = std::log(sum);
                for (std::size_t j = 0; j < weight.size(); ++j) {
                    weight[j] /= sum;
                    mean += weight[j] * gradient[j];
                }
                for (integer j = first; j <= t; ++j) {
                    const double p = weight[unsign(j - first)];
                    const double ds = f.scale * p * (gradient[unsign(j - first)] - mean);
                    for (integer c = 0; c < f.v_dim; ++c) {
                        out[out_place(c)] += p * wide(at.kv[at.value_place(j, h, c)]);
                        dkv[at.value_place(j, h, c)] += p * wide(at.dout[out_place(c)]);
                    }
                    for (integer c = 0; c < f.qk_dim; ++c) {
                        dq[q_place(c)] += ds * at.key(j, h, c);
                        (c < at.own ? dkv[at.key_place(j, h, c)] : dshared[unsign(j * f.shared_dim + c - at.own)]) +=
                            ds * wide(at.q[q_place(c)]);
                    }
                }
            }
    }
};

/// max|a - b| / max|b|; NaN if anything is.
template <class T> double distance(const numbers<T>& a, const numbers<double>& b) {
    double apart = 0, most = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double here = std::fabs(wide(a[i]) - b[i]);
        apart = here <= apart ? apart : here;
        most = std::max(most, std::fabs(b[i]));
        if (std::isnan(here)) return here;
    }
    return most == 0 ? apart : apart / most;
}

template <class T> void compare(const problem<T>& found, double close) {
    const expected right{found};
    CHECK(distance(found.out, right.out) < close);
    CHECK(distance(found.logsumexp, right.logsumexp) < close);
    CHECK(distance(found.dq, right.dq) < close);
    CHECK(distance(found.dkv, right.dkv) < close);
    CHECK(distance(found.dshared, right.dshared) < close);
}

constexpr attention_facts latent{.heads = 3, .kv_heads = 3, .qk_dim = 11, .v_dim = 5, .shared_dim = 4, .scale = 0.3};
constexpr attention_facts grouped{.heads = 4, .kv_heads = 2, .qk_dim = 8, .v_dim = 8, .shared_dim = 0, .scale = 0.35};

/// Latent attention at the widths of a real head: more than one lane of values, one kv head for each.
constexpr attention_facts real{.heads = 2, .kv_heads = 2, .qk_dim = 48, .v_dim = 32, .shared_dim = 16, .scale = 0.15};

struct size {
    attention_facts facts;
    integer sequences, length, document;
};
const size sizes[] = {
    {latent, 1, 1, 0},      {latent, 3, 17, 0},     {latent, 2, 64, 0},   {latent, 2, 130, 0}, {latent, 2, 130, 37},
    {latent, 2, 130, 1},    {grouped, 2, 100, 0},   {grouped, 3, 33, 10}, {real, 1, 300, 0},   {grouped, 1, 600, 0},
    {grouped, 1, 601, 550}, {latent, 1, 1100, 530}, {real, 1, 190, 63},
};

}  // namespace

TEST_CASE_TEMPLATE("attention: forward and backward equal the definition", T, double, float, bf16) {
    const double close = std::is_same_v<T, double> ? 1e-13 : std::is_same_v<T, float> ? 1e-5 : 0.02;
    for (const size& s : sizes) {
        CAPTURE(s.length);
        CAPTURE(s.document);
        CAPTURE(s.facts.heads);
        problem<T> at{s.facts, s.sequences, s.length, s.document};
        at.run(2);
        compare(at, close);
    }
}

TEST_CASE("attention: backward equals central differences") {
    for (const auto& [facts, document] : {std::pair{latent, integer{7}}, std::pair{grouped, integer{0}}}) {
        problem<double> at{facts, 2, 20, document};
        host_rank rank(2, ops::attention_scratch<double>(facts, 20));
        at.forward(rank.queue);
        at.backward(rank.queue);
        const auto loss = [&] {
            at.forward(rank.queue);
            double sum = 0;
            for (std::size_t i = 0; i < at.out.size(); ++i) sum += at.out[i] * at.dout[i];
            return sum;
        };
        const auto differs = [&](numbers<double>& x, const numbers<double>& gradient) {
            double worst = 0;
            for (std::size_t i = 0; i < x.size(); i += 3) {
                const double here = x[i], step = 1e-5;
                x[i] = here + step;
                const double above = loss();
                x[i] = here - step;
                const double below = loss();
                x[i] = here;
                worst = std::fmax(worst, std::fabs((above - below) / (2 * step) - gradient[i]));
            }
            return worst;
        };
        CHECK(differs(at.q, at.dq) < 1e-8);
        CHECK(differs(at.kv, at.dkv) < 1e-8);
        CHECK(differs(at.shared, at.dshared) < 1e-8);
    }
}

TEST_CASE_TEMPLATE("attention: the same bits with 1, 2 and 3 workers", T, double, float, bf16) {
    for (const attention_facts& facts : {latent, grouped}) {
        problem<T> one{facts, 3, 290, 0};
        one.run(1);
        for (const int workers : {2, 3}) {
            problem<T> more{facts, 3, 290, 0};
            more.run(workers);
            const auto same = [](const auto& a, const auto& b) {
                return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
            };
            CHECK(same(one.out, more.out));
            CHECK(same(one.logsumexp, more.logsumexp));
            CHECK(same(one.dq, more.dq));
            CHECK(same(one.dkv, more.dkv));
            CHECK(same(one.dshared, more.dshared));
        }
    }
}

TEST_CASE("attention: a packed sequence equals its documents apart, whatever stands next to them") {
    problem<float> packed{latent, 1, 96, 48};
    packed.kv[unsign(10 * packed.kv_width)] = 300;  // a key of the first document with huge scores
    packed.run(2);
    problem<float> apart{latent, 2, 48, 0};
    apart.q = packed.q, apart.kv = packed.kv, apart.shared = packed.shared, apart.dout = packed.dout;
    apart.run(2);
    CHECK(distance(packed.out, {apart.out.begin(), apart.out.end()}) < 1e-6);
    CHECK(distance(packed.dq, {apart.dq.begin(), apart.dq.end()}) < 1e-6);
    CHECK(distance(packed.dkv, {apart.dkv.begin(), apart.dkv.end()}) < 1e-6);
    CHECK(distance(packed.dshared, {apart.dshared.begin(), apart.dshared.end()}) < 1e-6);
}

/// Two ranks' parts of sequences of four chunks: the early runs of a rank, then its late ones, over rows in which rank
/// 0's tokens of all sequences stand before rank 1's.
struct two_parts {
    integer chunk, sequences;
    [[nodiscard]] std::vector<ops::place_run> runs(integer rank, integer first_row) const {
        const integer late = (3 - rank) * chunk;
        return {{rank * chunk, chunk, first_row, 2 * chunk}, {late, chunk, first_row + chunk, 2 * chunk}};
    }
    /// The row of such a matrix for token t of whole sequences.
    [[nodiscard]] integer row(integer t) const {
        const integer sequence = t / (4 * chunk), place = t % (4 * chunk), which = place / chunk;
        const integer rank = which == 0 || which == 3 ? 0 : 1;
        return rank * sequences * 2 * chunk + sequence * 2 * chunk + (which > 1 ? chunk : 0) + place % chunk;
    }
    template <class N> [[nodiscard]] numbers<N> moved(const numbers<N>& tokens) const {
        numbers<N> rows(tokens.size());
        const integer count = sequences * 4 * chunk, width = static_cast<integer>(tokens.size()) / count;
        for (integer t = 0; t < count; ++t)
            std::copy_n(tokens.begin() + t * width, width, rows.begin() + row(t) * width);
        return rows;
    }
};

TEST_CASE_TEMPLATE("attention: parts of the queries over parts of the keys merge to the whole", T, double, float,
                   bf16) {
    using A = accumulator_t<T>;
    const double close = std::is_same_v<T, double> ? 1e-13 : std::is_same_v<T, float> ? 1e-5 : 0.02;
    for (const attention_facts& facts : {latent, grouped})
        for (const integer chunk : {7, 70, 270})
            for (const integer document : {integer{0}, integer{11}, chunk + 3}) {
                if (chunk > 70 && (document != 0 || !std::is_same_v<T, double>)) continue;  // the definition is slow
                CAPTURE(chunk);
                CAPTURE(document);
                const two_parts cut{chunk, 2};
                problem<T> at{facts, 2, 4 * chunk, document};
                expected right{at};
                for (auto* moved : {&at.q, &at.kv, &at.shared, &at.dout}) *moved = cut.moved(*moved);
                at.starts = cut.moved(at.starts);
                for (auto* moved : {&right.out, &right.dq, &right.dkv, &right.dshared}) *moved = cut.moved(*moved);
                host_rank rank(2, ops::attention_scratch<T>(facts, 2 * chunk));
                const integer half = at.tokens / 2, width = facts.heads * facts.v_dim;
                numbers<A> sum(at.out.size()), dq(at.q.size()), dkv(at.kv.size()), dshared(at.shared.size());
                numbers<A> logsumexp(at.logsumexp.size());
                const auto in = at.operands(static_cast<const T*>(at.q.data()), static_cast<const T*>(at.kv.data()),
                                            static_cast<const T*>(at.shared.data()));
                const auto gradients = at.operands(dq.data(), dkv.data(), dshared.data());
                for (const integer mine : {0, 1}) {
                    // This rank's queries, to its own keys first and then to the other's.
                    const auto my_rows = [&](auto of) { return of.rows_at(mine * half, half); };
                    auto my_in = in;
                    my_in.q = my_rows(in.q);
                    auto my_gradients = gradients;
                    my_gradients.q = my_rows(gradients.q);
                    const matrix<A> out = my_rows(matrix<A>{sum.data(), at.tokens, width});
                    const matrix<A> lse =
                        matrix<A>{logsumexp.data(), facts.heads, at.tokens}.columns_at(mine * half, half);
                    const std::int32_t* starts = at.starts.data() + mine * half;
                    const auto queries = cut.runs(mine, 0);
                    const auto keys_of = [&](integer step) {
                        const integer owner = step == 0 ? mine : 1 - mine;
                        return cut.runs(owner, owner * half);
                    };
                    for (const integer step : {0, 1})
                        ops::attention_forward<T>(rank.queue, facts, 2, queries, keys_of(step), my_in, starts, out, lse,
                                                  step > 0);
                    const matrix<T> result = my_rows(matrix<T>{at.out.data(), at.tokens, width});
                    ops::detail::attention::copy_rows(out, result, A{1});
                    for (const integer step : {0, 1})
                        ops::attention_backward<T>(
                            rank.queue, facts, 2, queries, keys_of(step), my_in, starts, result, lse,
                            my_rows(matrix<const T>{at.dout.data(), at.tokens, width}), my_gradients,
                            {at.shared_parts.data(), at.tokens, facts.kv_heads * facts.shared_dim}, mine + step > 0);
                }
                CHECK(distance(at.out, right.out) < close);
                CHECK(distance(dq, right.dq) < close);
                CHECK(distance(dkv, right.dkv) < close);
                CHECK(distance(dshared, right.dshared) < close);
            }
}

TEST_CASE("attention: a query that sees none of the keys gets nothing, and all from what comes later") {
    problem<double> at{grouped, 1, 6, 0};
    const auto in = at.operands(static_cast<const double*>(at.q.data()), static_cast<const double*>(at.kv.data()),
                                static_cast<const double*>(at.shared.data()));
    const matrix<double> out{at.out.data(), 6, 32}, lse{at.logsumexp.data(), 4, 6};
    const ops::place_run all[] = {{0, 6, 0, 6}}, late[] = {{4, 2, 4, 0}}, early[] = {{0, 4, 0, 0}};
    host_rank rank(1, ops::attention_scratch<double>(grouped, 6));
    ops::attention_forward<double>(rank.queue, grouped, 1, all, late, in, at.starts.data(), out, lse);
    CHECK(out(3, 5) == 0);
    CHECK(lse(2, 3) == -std::numeric_limits<double>::infinity());
    CHECK(out(4, 5) != 0);
    ops::attention_forward<double>(rank.queue, grouped, 1, all, early, in, at.starts.data(), out, lse, true);
    CHECK(distance(at.out, expected{at}.out) < 1e-13);
    CHECK(distance(at.logsumexp, expected{at}.logsumexp) < 1e-13);
}

TEST_CASE("attention: scores far apart neither overflow nor vanish") {
    problem<float> at{grouped, 1, 700, 0};
    for (float& x : at.q) x *= 40;
    for (std::size_t i = 0; i < at.q.size() / 2; ++i) at.q[i] = std::fabs(at.q[i]);
    problem<double> wider{grouped, 1, 700, 0};
    std::copy(at.q.begin(), at.q.end(), wider.q.begin());
    at.run(2);
    wider.run(2);
    CHECK(distance(at.out, wider.out) < 1e-3);
    CHECK(distance(at.logsumexp, wider.logsumexp) < 1e-5);
    CHECK(distance(at.dkv, wider.dkv) < 1e-3);
}

TEST_CASE("attention: a token that is not a number spoils what sees it and nothing before it") {
    problem<float> at{grouped, 1, 80, 0};
    at.kv[unsign(70 * at.kv_width)] = std::nanf("");
    at.run(1);
    const auto row_is_sound = [&](integer t) {
        return std::all_of(at.out.begin() + t * 32, at.out.begin() + (t + 1) * 32, [](float x) { return x == x; });
    };
    for (integer t = 0; t < 80; ++t) CHECK(row_is_sound(t) == (t < 70));
}

TEST_CASE("attention: what doesn't fit is refused, nothing is fine") {
    problem<float> at{latent, 2, 8, 0};
    host_rank rank(1, ops::attention_scratch<float>(latent, 8));
    CHECK_NOTHROW(at.forward(rank.queue));
    at.starts[13] = 6;
    CHECK_THROWS_WITH_AS(at.forward(rank.queue),
                         "attention: found document start 6 at token 5 of sequence 1, expected one in [0, 5]", error);
    at.starts[13] = -1;
    CHECK_THROWS_AS(at.forward(rank.queue), error);
    at.starts[13] = 0;
    at.sequences = 3;
    CHECK_THROWS_WITH_AS(at.forward(rank.queue), "attention: found queries of 16 tokens, expected 3 sequences of 8",
                         error);
    at.sequences = 2;
    at.facts.kv_heads = 2;
    CHECK_THROWS_AS(at.forward(rank.queue), error);
    at.facts.kv_heads = 3;
    at.facts.shared_dim = 12;
    CHECK_THROWS_AS(at.forward(rank.queue), error);
    host_rank poor(1, 1024);
    problem<float> again{latent, 2, 8, 0};
    CHECK_THROWS_AS(again.forward(poor.queue), error);
    at = problem<float>{latent, 2, 8, 0};
    const ops::place_run whole[] = {{0, 8, 0, 8}}, beyond[] = {{0, 8, 1, 8}};
    CHECK_THROWS_WITH_AS(
        ops::attention_forward<float>(
            rank.queue, latent, 2, whole, beyond,
            at.operands(static_cast<const float*>(at.q.data()), static_cast<const float*>(at.kv.data()),
                        static_cast<const float*>(at.shared.data())),
            at.starts.data(), matrix<float>{at.out.data(), 16, 15}, {at.logsumexp.data(), 3, 16}),
        "attention: found keys of 16 tokens, expected 17 at least", error);
    problem<float> nothing{latent, 0, 8, 0};
    CHECK_NOTHROW(nothing.run(2));
}

TEST_CASE("attention: scratch grows no faster than the sequence") {
    constexpr integer once = ops::attention_scratch<float>(real, 4096),
                      twice = ops::attention_scratch<float>(real, 8192);
    static_assert(twice < 2 * once);
    CHECK(once < 4096 * 4096);
}

}  // namespace fathom
