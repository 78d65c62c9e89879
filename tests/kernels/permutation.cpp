#include <doctest/doctest.h>

#include <cstdint>
#include <fathom/ops/permutation.hpp>
#include <fathom/ops/permutation/kernel.hpp>
#include <utility>
#include <vector>

#include "../unit/ops/numbers.hpp"
#include "launch.hpp"

namespace fathom::test {

namespace {

struct grouped {
    std::vector<integer> offsets;
    std::vector<std::int32_t> rows, slot;
    grouped(integer experts, integer pairs) : offsets(experts + 1, 77), rows(pairs), slot(pairs) {}
};

/// ids[tokens, k] of which many go to expert 1, and none to the last one of several.
std::vector<std::int32_t> some_ids(integer tokens, integer k, integer experts) {
    std::vector<std::int32_t> ids;
    for (integer i = 0; i < tokens * k; ++i)
        ids.push_back(static_cast<std::int32_t>(experts < 3 ? i % experts : i % 3 == 0 ? 1 : i * i % (experts - 1)));
    return ids;
}

}  // namespace

TEST_CASE("the kernels that sort tokens by expert equal the host") {
    pool p(1);
    for (const integer experts : {1, 7, 300})
        for (const integer tokens : {0, 1, 50, 200}) {
            constexpr integer k = 3;
            const integer pairs = tokens * k, chunks = ops::count_rows_kernel::blocks(pairs);
            const auto ids = some_ids(tokens, k, experts);
            grouped host(experts, pairs), found(experts, pairs);
            ops::group_rows(p.queue, {ids.data(), tokens, k}, experts, host.offsets.data(), host.rows.data(),
                            host.slot.data());
            std::vector<std::int32_t> counts(chunks * experts, -1);
            const matrix<std::int32_t> counts_view{counts.data(), chunks, experts};
            const auto flat = vector_view(ids.data(), pairs);
            launch(ops::count_rows_kernel{experts}, chunks, counts_view, flat);
            launch(ops::place_groups_kernel{}, 1, vector_view(found.offsets.data(), experts + 1), counts_view);
            launch(ops::place_rows_kernel{experts}, chunks, vector_view(found.rows.data(), pairs),
                   vector_view(found.slot.data(), pairs), matrix<const std::int32_t>{counts_view}, flat, k);
            CHECK(found.offsets == host.offsets);
            CHECK(found.rows == host.rows);
            CHECK(found.slot == host.slot);
        }
}

TEST_CASE("the kernel that counts rows ends at an expert that is none" * doctest::test_suite("simulated")) {
    for (const std::int32_t id : {-1, 4}) {
        const std::vector<std::int32_t> ids{0, id};
        std::vector<std::int32_t> counts(4);
        CHECK_THROWS_WITH_AS(
            launch(ops::count_rows_kernel{4}, 1, vector_view(counts.data(), 4), vector_view(ids.data(), 2)),
            "kernel count_rows, block 0, thread 1: an expert that is none", error);
    }
}

TEST_CASE_TEMPLATE("the kernels that move rows and scalars equal the host bit for bit", T, double, float, bf16) {
    using A = accumulator_t<T>;
    using gather = ops::gather_rows_kernel<T>;
    using combine = ops::combine_rows_kernel<T>;
    using move = ops::move_scalars_kernel<A>;
    pool p(1);
    for (const auto& [tokens, width] : {std::pair<integer, integer>{0, 5}, {1, 64}, {40, 67}, {40, 88}}) {
        constexpr integer k = 3, experts = 7;
        const integer pairs = tokens * k;
        const auto ids = some_ids(tokens, k, experts);
        grouped g(experts, pairs);
        ops::group_rows(p.queue, {ids.data(), tokens, k}, experts, g.offsets.data(), g.rows.data(), g.slot.data());
        const auto rows = vector_view<const std::int32_t>(g.rows.data(), pairs),
                   slot = vector_view<const std::int32_t>(g.slot.data(), pairs);
        numbers<T> x(tokens, width, 1, 1, 8), y(pairs, width, 0, 1, 8), found = y, back(tokens, width, 2),
                                                                        found_back = back;
        ops::gather_rows(p.queue, y.view(), x.view(), g.rows.data());
        launch(gather{}, gather::blocks(pairs), found.view(), matrix<const T>{x.view()}, rows);
        CHECK(same_bits(found.memory, y.memory));
        for (const bool accumulate : {false, true}) {
            ops::combine_rows(p.queue, back.view(), y.view(), g.slot.data(), k, accumulate);
            launch(combine{}, combine::blocks(tokens), found_back.view(), matrix<const T>{y.view()},
                   matrix<const std::int32_t>{g.slot.data(), tokens, k}, accumulate);
            CHECK(same_bits(found_back.memory, back.memory));
        }
        numbers<A> values(1, pairs, 3), scattered(1, pairs), found_scattered(1, pairs), returned(1, pairs);
        ops::scatter_scalars(p.queue, scattered.data(), values.data(), g.slot.data(), pairs);
        launch(move{}, move::blocks(pairs), found_scattered.view(), values.view(), slot, false);
        launch(move{}, move::blocks(pairs), found_scattered.view(), returned.view(), slot, true);
        CHECK(found_scattered.memory == scattered.memory);
        CHECK(returned.memory == values.memory);
    }
}

}  // namespace fathom::test
