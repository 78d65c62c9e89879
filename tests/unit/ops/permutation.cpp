#include <doctest/doctest.h>

#include <fathom/ops/permutation.hpp>
#include <vector>

#include "numbers.hpp"

namespace fathom::test {

namespace {

/// Four tokens with two experts each out of five; experts 2 and 4 get nothing.
constexpr std::int32_t chosen[] = {0, 3, 1, 3, 0, 1, 0, 3};
constexpr integer tokens = 4, k = 2, experts = 5;

struct grouping {
    integer offsets[experts + 1]{};
    std::int32_t rows[tokens * k]{}, slot[tokens * k]{};
    explicit grouping(host::queue& queue) {
        ops::group_rows(queue, matrix<const std::int32_t>{chosen, tokens, k}, experts, offsets, rows, slot);
    }
};

}  // namespace

TEST_CASE("permutation: pairs are sorted by expert, in token order within an expert") {
    pool on(1);
    const grouping found(on.queue);
    CHECK(std::vector<integer>(found.offsets, found.offsets + 6) == std::vector<integer>{0, 3, 5, 5, 8, 8});
    CHECK(std::vector<int>(found.rows, found.rows + 8) == std::vector<int>{0, 2, 3, 1, 2, 0, 1, 3});
    CHECK(std::vector<int>(found.slot, found.slot + 8) == std::vector<int>{0, 5, 3, 6, 1, 4, 2, 7});
}

TEST_CASE("permutation: no tokens leave every group empty") {
    pool on(1);
    integer offsets[] = {7, 7, 7};
    ops::group_rows(on.queue, matrix<const std::int32_t>{nullptr, 0, 2}, 2, offsets, nullptr, nullptr);
    CHECK(std::vector<integer>(offsets, offsets + 3) == std::vector<integer>{0, 0, 0});
}

TEST_CASE("permutation: an id beyond the experts is refused") {
    pool on(1);
    integer offsets[4];
    std::int32_t rows[8], slot[8];
    CHECK_THROWS_WITH_AS(
        ops::group_rows(on.queue, matrix<const std::int32_t>{chosen, tokens, k}, 3, offsets, rows, slot),
        "group_rows: found expert 3 for token 0, expected 0 to 2", error);
}

TEST_CASE_TEMPLATE("permutation: rows and scalars go to their experts and come back", T, double, float, bf16) {
    using A = accumulator_t<T>;
    constexpr integer hidden = 70;
    for (const int workers : {1, 2}) {
        pool on(workers);
        const grouping by(on.queue);
        numbers<T> x(tokens, hidden, 1, 1, 3), grouped(tokens * k, hidden, 9), y(tokens, hidden, 9);
        ops::gather_rows(on.queue, grouped.view(), x.view(), by.rows);
        for (integer t = 0; t < tokens; ++t)
            for (integer j = 0; j < k; ++j)
                for (integer c = 0; c < hidden; ++c) CHECK(grouped(by.slot[t * k + j], c) == x(t, c));
        for (integer r = 0; r < tokens * k; ++r)
            for (integer c = 0; c < hidden; ++c) grouped.view()(r, c) = static_cast<T>(static_cast<float>(r * 2));
        ops::combine_rows(on.queue, y.view(), grouped.view(), by.slot, k);
        ops::combine_rows(on.queue, x.view(), grouped.view(), by.slot, k, true);
        const numbers<T> before(tokens, hidden, 1, 1, 3);
        for (integer t = 0; t < tokens; ++t) {
            const double sum = 2 * (by.slot[t * k] + by.slot[t * k + 1]);
            CHECK(y(t, hidden - 1) == sum);
            const auto was = static_cast<double>(before.memory[static_cast<std::size_t>(t * (hidden + 3))]);
            CHECK(x(t, 0) == doctest::Approx(was + sum).epsilon(tolerance<T>));
        }
        numbers<A> weights(tokens, k, 2), scales(1, tokens * k), back(tokens, k);
        ops::scatter_scalars(on.queue, scales.data(), weights.data(), by.slot, tokens * k);
        CHECK(scales(0, by.slot[5]) == weights(2, 1));
        ops::gather_scalars(on.queue, back.data(), scales.data(), by.slot, tokens * k);
        CHECK(same_bits(back.memory, weights.memory));
    }
}

TEST_CASE("permutation: of the pairs of each part of the experts, those of the lowest scores are dropped") {
    pool on(1);
    constexpr std::int32_t ids[] = {0, 3, 1, 2, 0, 1, 0, 3};  // parts: experts 0 and 1, experts 2 and 3
    numbers<double> scores(tokens, 4);
    const double of_pairs[] = {0.5, 0.1, 0.2, 0.3, 0.2, 0.4, 0.7, 0.3};
    for (integer pair = 0; pair < 8; ++pair) scores.view()(pair / 2, ids[pair]) = of_pairs[pair];
    const auto kept = [&](integer most) {
        std::vector<std::int32_t> found(8, 77), order(8);
        ops::drop_rows<double>(on.queue, {found.data(), tokens, k}, {ids, tokens, k}, scores.view(), 4, 2, most,
                               order.data());
        return found;
    };
    using list = std::vector<std::int32_t>;
    CHECK(kept(8) == list{0, 3, 1, 2, 0, 1, 0, 3});
    CHECK(kept(4) == list{0, 3, 1, 2, 4, 1, 0, 3});  // of two equal scores, the first stays
    CHECK(kept(2) == list{0, 4, 4, 2, 4, 4, 0, 3});
    CHECK(kept(1) == list{4, 4, 4, 2, 4, 4, 0, 4});
    CHECK(kept(0) == list{4, 4, 4, 4, 4, 4, 4, 4});
}

TEST_CASE_TEMPLATE("permutation: rows change places where they lie", T, double, bf16) {
    constexpr integer rows = 9, hidden = 70;
    const std::int32_t to[rows] = {2, 1, 5, 8, 3, 0, 7, 6, 4};  // cycles of three, one, three and two rows
    for (const int workers : {1, 2}) {
        pool on(workers);
        numbers<T> x(rows, hidden, 4, 1, 3), moved(rows, hidden, 4, 1, 3);
        std::vector<std::int32_t> cycles(rows, 77);
        ops::permute_rows(on.queue, moved.view(), to, cycles.data());
        for (integer r = 0; r < rows; ++r)
            for (integer c = 0; c < hidden; ++c) CHECK(moved(to[r], c) == x(r, c));
    }
}

}  // namespace fathom::test
