// Any stretch of a storage's numbers falls into rectangles of its matrices, each in one piece and each number once.
#include <fathom/train/held_slices.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace fathom {

TEST_CASE("a stretch of a stack's storage falls into rectangles") {
    // Two matrices of 3 of 12 rows interleave with others' rows in a storage that has 4 of 9 columns.
    nn::storage facts{.rows = 10, .width = 4, .column = 2, .of_width = 9};
    const nn::part part{.name = "m.*", .rows = 3, .first = 1, .count = 2, .step = 5, .row = 6, .of_rows = 12};
    const integer size = facts.size();
    for (integer first = 0; first <= size; ++first)
        for (integer last = first; last <= size; ++last) {
            std::vector<int> seen(static_cast<std::size_t>(size));
            int slices = 0;
            bool sound = true;
            for (integer n = 0; n < part.count; ++n) {
                for (const auto& [s, at] : train::detail::rectangles_of("m", facts, part, n, first, last)) {
                    ++slices;
                    sound = sound && s.of_rows == 12 && s.of_columns == 9 && at >= first && at + s.size() <= last;
                    for (integer i = 0; i < s.size(); ++i) {
                        // Where the slice says that the number is, and where it is.
                        const integer row = s.row + i / s.columns - 6, column = s.column + i % s.columns - 2;
                        sound = sound && (1 + 5 * n + row) * 4 + column == at + i;
                        ++seen[static_cast<std::size_t>(at + i)];
                    }
                }
            }
            for (integer i = 0; i < size; ++i) {
                const integer row = i / 4;
                const bool of_part = (row >= 1 && row < 4) || (row >= 6 && row < 9);
                sound = sound && seen[static_cast<std::size_t>(i)] == (of_part && i >= first && i < last ? 1 : 0);
            }
            sound = sound && slices <= 6;
            if (!sound) CHECK_MESSAGE(sound, "[", first, ", ", last, ")");
        }
    CHECK(train::detail::numbered_name("a.*.b", 12) == "a.12.b");
    CHECK(train::detail::numbered_name("a.b", 12) == "a.b");
}

TEST_CASE("a vector is stored with one dimension") {
    const nn::storage facts = nn::gain("norm.weight", 6);
    const auto all = train::detail::rectangles_of("norm.weight", facts, facts.parts[0], 0, 2, 6);
    REQUIRE(all.size() == 1);
    CHECK(all[0].at == 2);
    CHECK(all[0].of.stored_name() == "norm.weight[2,0 of 6,1]");
    CHECK(all[0].of.shape() == std::vector<std::int64_t>{4});
}

}  // namespace fathom
