// A matrix that several ranks hold is stored in slices, each named so that whoever holds other slices finds its
// numbers.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/core/bytes.hpp"
#include "fathom/core/error.hpp"

namespace fathom::checkpoint {

/// A rectangle of a named matrix [of_rows, of_columns].
struct slice {
    std::string name;
    bool vector = false;  // stored with one dimension; of_columns is 1
    integer of_rows = 0, of_columns = 0;
    integer row = 0, column = 0, rows = 0, columns = 0;

    [[nodiscard]] bool whole() const { return rows == of_rows && columns == of_columns; }
    [[nodiscard]] integer size() const { return rows * columns; }
    /// Of the slice, as files have it.
    [[nodiscard]] std::vector<std::int64_t> shape() const { return shape_of(rows, columns); }
    [[nodiscard]] std::vector<std::int64_t> whole_shape() const { return shape_of(of_rows, of_columns); }
    [[nodiscard]] slice all() const { return {name, vector, of_rows, of_columns, 0, 0, of_rows, of_columns}; }

    /// `NAME` of a whole matrix, else `NAME[ROW,COLUMN of ROWS,COLUMNS]`: where the slice begins, and of what.
    [[nodiscard]] std::string stored_name() const {
        return whole() ? name : text_of(name, '[', row, ',', column, " of ", of_rows, ',', of_columns, ']');
    }
    /// The slice that a file has under that name with that shape. Errors: a name or a shape that no save writes.
    static slice of_stored(std::string_view stored, const std::vector<std::int64_t>& shape) {
        slice s;
        if (shape.empty() || shape.size() > 2) fail("found ", shape.size(), " dimensions, expected 1 or 2");
        s.vector = shape.size() == 1;
        s.rows = shape[0], s.columns = s.vector ? 1 : shape[1];
        s.of_rows = s.rows, s.of_columns = s.columns;
        const std::size_t bracket = stored.find('[');
        s.name = stored.substr(0, bracket);
        if (bracket == stored.npos) return s;
        const char *at = stored.data() + bracket, *end = stored.data() + stored.size();
        const auto take = [&](std::string_view before, integer& number) {
            const std::string_view rest{at, static_cast<std::size_t>(end - at)};
            if (!rest.starts_with(before)) return false;
            const auto [after, problem] = std::from_chars(at + before.size(), end, number);
            at = after;
            return problem == std::errc{};
        };
        const bool read = take("[", s.row) && take(",", s.column) && take(" of ", s.of_rows) && take(",", s.of_columns);
        if (!read || std::string_view{at, static_cast<std::size_t>(end - at)} != "]")
            fail("found the name \"", stored, "\", expected NAME[ROW,COLUMN of ROWS,COLUMNS]");
        const auto within = [](integer first, integer count, integer of) {
            return first >= 0 && first <= of && count <= of - first;
        };
        if (!within(s.row, s.rows, s.of_rows) || !within(s.column, s.columns, s.of_columns))
            fail("found ", s.rows, " rows and ", s.columns, " columns under \"", stored, "\", expected them within it");
        return s;
    }

  private:
    [[nodiscard]] std::vector<std::int64_t> shape_of(integer r, integer c) const {
        if (vector) return {r};
        return {r, c};
    }
};

}  // namespace fathom::checkpoint
