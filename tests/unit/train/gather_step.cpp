// Records of ranks become one record on rank 0, in order and to the bit, however they lie over blocks.
#include <doctest/doctest.h>

#include <fathom/comm/threads/run.hpp>
#include <fathom/train/gather_step.hpp>
#include <string>
#include <vector>

namespace fathom {
namespace {

using kind = train::recorded_tensor::kind;

constexpr integer rows = 300, columns = 401;

double value(integer rank, integer at) { return static_cast<double>(rank) + 1.0 / static_cast<double>(at + 3); }

/// Every rank has a row of a tensor that all share, and one of its own that takes more than one block; the last rank
/// has nothing.
void fill(train::recorded_step& to, integer rank, integer ranks) {
    if (rank == ranks - 1) return;
    to.add({"shared", kind::forward, 2, "product", 7, ranks, 1, {{rank, rank, 0, 1, 1, {value(rank, 0)}}}});
    std::vector<double> all(static_cast<std::size_t>(rows * columns));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = value(rank, static_cast<integer>(i));
    to.add({text_of("own.", rank), kind::gradient, rank, {}, -rank, rows, columns, {{rank, 0, 0, rows, columns, all}}});
}

}  // namespace

TEST_CASE("gather_step: rank 0 has what threads would have added to one record, the others have nothing") {
    for (const integer ranks : {1, 2, 4}) {
        CAPTURE(ranks);
        train::recorded_step expected;
        for (integer r = 0; r < ranks; ++r) fill(expected, r, ranks);
        comm::threads::run(ranks, [&](auto& mine) {
            train::recorded_step step;
            fill(step, mine.rank(), ranks);
            train::gather_step(comm::link{mine}, step);
            if (mine.rank() > 0) {
                CHECK(step.tensors().empty());
                return;
            }
            REQUIRE(step.tensors().size() == expected.tensors().size());
            for (const auto& [key, t] : expected.tensors()) {
                CAPTURE(key);
                const train::recorded_tensor* found = step.find(key);
                REQUIRE(found != nullptr);
                CHECK(found->what == t.what);
                CHECK(found->layer == t.layer);
                CHECK(found->operation == t.operation);
                CHECK(found->order == t.order);
                CHECK(found->rows == t.rows);
                CHECK(found->columns == t.columns);
                REQUIRE(found->pieces.size() == t.pieces.size());
                for (std::size_t i = 0; i < t.pieces.size(); ++i) {
                    CHECK(found->pieces[i].rank == t.pieces[i].rank);
                    CHECK(found->pieces[i].row == t.pieces[i].row);
                    CHECK(found->pieces[i].values == t.pieces[i].values);
                }
            }
        });
    }
}

}  // namespace fathom
