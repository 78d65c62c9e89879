// Names of slices say where they lie, and a name that no save writes is refused.
#include "fathom/checkpoint/slice.hpp"

#include <doctest/doctest.h>

#include "../scratch_folder.hpp"

namespace fathom {

using checkpoint::slice;
using test::message_of;

TEST_CASE("a slice is found again by its name and shape") {
    const slice part{"a.weight", false, 10, 6, 4, 2, 3, 4};
    CHECK(part.stored_name() == "a.weight[4,2 of 10,6]");
    CHECK(part.shape() == std::vector<std::int64_t>{3, 4});
    CHECK(part.whole_shape() == std::vector<std::int64_t>{10, 6});
    const slice found = slice::of_stored(part.stored_name(), part.shape());
    CHECK(found.name == "a.weight");
    CHECK_FALSE(found.vector);
    CHECK(found.row == 4);
    CHECK(found.column == 2);
    CHECK(found.rows == 3);
    CHECK(found.columns == 4);
    CHECK(found.of_rows == 10);
    CHECK(found.of_columns == 6);
    const slice whole = slice::of_stored("a.weight", {10, 6});
    CHECK(whole.whole());
    CHECK(whole.stored_name() == "a.weight");
    const slice gain{"norm", true, 8, 1, 2, 0, 3, 1};
    CHECK(gain.stored_name() == "norm[2,0 of 8,1]");
    CHECK(gain.shape() == std::vector<std::int64_t>{3});
    CHECK(slice::of_stored(gain.stored_name(), gain.shape()).vector);
    CHECK(gain.all().shape() == std::vector<std::int64_t>{8});
}

TEST_CASE("a slice of a foreign name or outside its matrix is refused") {
    const auto refused = [](const char* name, const std::vector<std::int64_t>& shape) {
        return message_of([&] { (void)slice::of_stored(name, shape); });
    };
    for (const char* name : {"a[", "a[1,2]", "a[1,2 of 3]", "a[1,2 of 3,4", "a[1,2 of 3,4]b", "a[x,2 of 3,4]", "a[]"})
        CHECK(refused(name, {1, 1}).find("expected NAME[ROW,COLUMN of ROWS,COLUMNS]") != std::string::npos);
    CHECK(refused("a[8,0 of 10,6]", {3, 6}) ==
          "found 3 rows and 6 columns under \"a[8,0 of 10,6]\", expected them within it");
    CHECK(refused("a[-1,0 of 10,6]", {3, 6}) != "no error");
    CHECK(refused("a[0,4 of 10,6]", {3, 3}) != "no error");
    CHECK(refused("a", {1, 1, 1}) == "found 3 dimensions, expected 1 or 2");
}

}  // namespace fathom
