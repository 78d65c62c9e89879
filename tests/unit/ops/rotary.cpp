// Rotary position embedding: the tables of released models, and the rotation and its transpose.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fathom/checkpoint/safetensors.hpp>
#include <fathom/core/json.hpp>
#include <fathom/core/random_stream.hpp>
#include <fathom/ops/rotary.hpp>
#include <string>
#include <vector>

namespace fathom {
namespace {

using ops::rope_facts;

std::string folder() {
    const char* root = std::getenv("FATHOM_SOURCE_ROOT");
    return std::string{root ? root : "."} + "/tests/oracle/rope_tables/";
}

template <class T> std::vector<T> numbers_of(const safetensors::file& file, const std::string& name) {
    std::vector<T> numbers(file.at(name).size());
    safetensors::read_as<T>(file.at(name), numbers);
    return numbers;
}

rope_facts facts_of(const json::value& config) {
    const auto number = [](const json::value& from, const char* name, double otherwise) {
        const json::value* found = from.find(name);
        return found ? found->as_number() : otherwise;
    };
    const json::value& rope = config.at("rope_parameters");
    const std::string kind = rope.at("rope_type").as_string();
    rope_facts facts;
    facts.theta = rope.at("rope_theta").as_number();
    facts.dim = config.find("qk_rope_head_dim")
                    ? config.at("qk_rope_head_dim").as_int()
                    : config.at("hidden_size").as_int() / config.at("num_attention_heads").as_int();
    facts.kind = kind == "yarn"     ? rope_facts::scaling::yarn
                 : kind == "linear" ? rope_facts::scaling::linear
                                    : rope_facts::scaling::none;
    facts.factor = number(rope, "factor", 1);
    facts.original_max_position_embeddings = static_cast<integer>(number(rope, "original_max_position_embeddings", 0));
    facts.mscale = number(rope, "mscale", 0);
    facts.mscale_all_dim = number(rope, "mscale_all_dim", 0);
    return facts;
}

struct host_rank {
    explicit host_rank(int workers) : pool(workers), queue(pool, nullptr, 0) {}
    host::workers pool;
    host::queue queue;
};

template <class T> std::vector<T> noise(integer count, std::uint64_t stream) {
    std::vector<T> numbers;
    for (integer i = 0; i < count; ++i)
        numbers.push_back(
            static_cast<T>(static_cast<float>(random_stream{7, stream}.normal(static_cast<std::uint64_t>(i)))));
    return numbers;
}

constexpr integer tokens = 131, positions_known = 40, width = 37, first = 3, stride = 11, heads = 3, dim = 6;

/// Rotates noise[tokens, width], and hands it back.
template <class T> std::vector<T> rotated(bool interleaved, bool inverse, int workers, std::vector<T> x) {
    using A = accumulator_t<T>;
    host_rank rank(workers);
    std::vector<A> cosines(positions_known * dim / 2), sines(cosines.size());
    ops::rope_table<A>({.dim = dim}, {cosines.data(), positions_known, dim / 2},
                       {sines.data(), positions_known, dim / 2});
    std::vector<std::int32_t> positions;
    for (integer t = 0; t < tokens; ++t) positions.push_back(static_cast<std::int32_t>(t * 7 % positions_known));
    ops::rotate(rank.queue, matrix<T>{x.data(), tokens, width}, first, stride, heads, dim, interleaved,
                positions.data(), {cosines.data(), positions_known, dim / 2}, {sines.data(), positions_known, dim / 2},
                inverse);
    return x;
}

}  // namespace

TEST_CASE("rotary: tables, attention factor and softmax scale of released models") {
    const safetensors::file known{folder() + "rope.safetensors"};
    const auto positions = numbers_of<std::int64_t>(known, "positions");
    REQUIRE(positions.size() == 11);
    const json::value meta = json::parse_file(folder() + "meta.json");
    CHECK(meta.members().size() == 5);
    for (const auto& [name, about] : meta.members()) {
        CAPTURE(name);
        const rope_facts facts = facts_of(about.at("config"));
        const auto frequencies = numbers_of<double>(known, name + ".inv_freq");
        const auto cosines = numbers_of<double>(known, name + ".cos"), sines = numbers_of<double>(known, name + ".sin");
        const integer pairs = facts.dim / 2;
        REQUIRE(frequencies.size() == static_cast<std::size_t>(pairs));
        for (integer pair = 0; pair < pairs; ++pair)
            CHECK(ops::inverse_frequency(facts, pair) ==
                  doctest::Approx(frequencies[static_cast<std::size_t>(pair)]).epsilon(1e-14));
        CHECK(ops::attention_factor(facts) == doctest::Approx(about.at("attention_factor").as_number()).epsilon(1e-15));
        if (!about.at("softmax_scale").is_null())
            CHECK(ops::softmax_scale(facts, 192) ==
                  doctest::Approx(about.at("softmax_scale").as_number()).epsilon(1e-15));

        const integer count = positions.back() + 1;
        std::vector<double> c(static_cast<std::size_t>(count * pairs)), s(c.size());
        const matrix<double> cosine{c.data(), count, pairs}, sine{s.data(), count, pairs};
        ops::rope_table(facts, cosine, sine);
        double worst = 0;
        for (std::size_t i = 0; i < cosines.size(); ++i) {
            const integer row = positions[i / static_cast<std::size_t>(pairs)];
            const integer pair = static_cast<integer>(i) % pairs;
            worst = std::fmax(worst, std::fabs(cosine(row, pair) - cosines[i]));
            worst = std::fmax(worst, std::fabs(sine(row, pair) - sines[i]));
        }
        CHECK(worst < 1e-9);
    }
}

TEST_CASE("rotary: the softmax scales of DeepSeek-V2 and V3, and a cosine factor where the magnitudes differ") {
    rope_facts facts{.dim = 64,
                     .kind = rope_facts::scaling::yarn,
                     .factor = 40,
                     .original_max_position_embeddings = 4096,
                     .mscale = 0.707,
                     .mscale_all_dim = 0.707};
    CHECK(ops::softmax_scale(facts, 192) == doctest::Approx(0.1147213867929261).epsilon(1e-15));
    facts.mscale = facts.mscale_all_dim = 1;
    CHECK(ops::softmax_scale(facts, 192) == doctest::Approx(0.1352337788608801).epsilon(1e-15));
    CHECK(ops::attention_factor(facts) == 1);
    facts.mscale = 0.707;
    CHECK(ops::attention_factor(facts) == doctest::Approx((0.0707 * std::log(40.0) + 1) / (0.1 * std::log(40.0) + 1)));
    facts.mscale_all_dim = 0;
    CHECK(ops::attention_factor(facts) == doctest::Approx(0.1 * std::log(40.0) + 1));
    CHECK(ops::softmax_scale(facts, 192) == doctest::Approx(1 / std::sqrt(192.0)));
}

TEST_CASE("rotary: settings that describe no rotation are refused") {
    std::vector<double> c(8), s(8);
    const auto refuses = [&](const rope_facts& facts, integer width_given) {
        CHECK_THROWS_AS(ops::rope_table<double>(facts, {c.data(), 2, width_given}, {s.data(), 2, width_given}), error);
    };
    refuses({.dim = 5}, 2);
    refuses({.theta = 1, .dim = 4}, 2);
    refuses({.dim = 4, .kind = rope_facts::scaling::linear, .factor = 0}, 2);
    refuses({.dim = 4, .kind = rope_facts::scaling::yarn, .factor = 4}, 2);
    refuses({.dim = 4}, 3);
    CHECK_NOTHROW(ops::rope_table<double>({.dim = 4}, {c.data(), 2, 2}, {s.data(), 2, 2}));
}

TEST_CASE_TEMPLATE("rotary: pairs turn in place, the rest stays, and the inverse turns back", T, double, float, bf16) {
    using A = accumulator_t<T>;
    const double close = std::is_same_v<T, double> ? 1e-14 : std::is_same_v<T, float> ? 1e-6 : 0.03;
    const auto x = noise<T>(tokens * width, 1);
    for (const bool interleaved : {true, false}) {
        const auto y = rotated<T>(interleaved, false, 2, x);
        double worst = 0;
        bool others_stay = true;
        for (integer t = 0; t < tokens; ++t)
            for (integer c = 0; c < width; ++c) {
                const auto at = [&](integer column) {
                    return static_cast<double>(static_cast<A>(x[static_cast<std::size_t>(t * width + column)]));
                };
                const double found = static_cast<double>(static_cast<A>(y[static_cast<std::size_t>(t * width + c)]));
                const integer head = c < first ? heads : (c - first) / stride, place = (c - first) % stride;
                if (head >= heads || place >= dim) {
                    others_stay = others_stay && found == at(c);
                    continue;
                }
                const integer pair = interleaved ? place / 2 : place % (dim / 2);
                const bool is_second = interleaved ? place % 2 == 1 : place >= dim / 2;
                const integer apart = interleaved ? 1 : dim / 2;
                const double angle = static_cast<double>(t * 7 % positions_known) *
                                     std::pow(1e4, -2.0 * static_cast<double>(pair) / dim);
                const double expected = is_second ? at(c) * std::cos(angle) + at(c - apart) * std::sin(angle)
                                                  : at(c) * std::cos(angle) - at(c + apart) * std::sin(angle);
                worst = std::fmax(worst, std::fabs(found - expected));
            }
        CHECK(others_stay);
        CHECK(worst < close);

        const auto back = rotated<T>(interleaved, true, 2, y);
        double apart = 0;
        for (std::size_t i = 0; i < x.size(); ++i)
            apart = std::fmax(apart, std::fabs(static_cast<double>(static_cast<A>(back[i]) - static_cast<A>(x[i]))));
        CHECK(apart < close * 2);
        for (const int workers : {1, 3}) {
            const auto again = rotated<T>(interleaved, false, workers, x);
            CHECK(std::memcmp(again.data(), y.data(), y.size() * sizeof(T)) == 0);
        }
    }
}

TEST_CASE("rotary: a position outside the tables is refused, no tokens are fine") {
    host_rank rank(2);
    std::vector<float> table(4, 1.0f), x(8, 1.0f);
    const std::int32_t positions[] = {1, 2};
    const auto turn = [&](integer rows) {
        ops::rotate(rank.queue, matrix<float>{x.data(), rows, 4}, 0, 4, 1, 4, true, positions, {table.data(), 2, 2},
                    {table.data(), 2, 2}, false);
    };
    CHECK_NOTHROW(turn(0));
    CHECK_NOTHROW(turn(1));
    CHECK_THROWS_WITH_AS(turn(2), "rotate: found position 2 at token 1, expected one in [0, 2)", error);
}

}  // namespace fathom
