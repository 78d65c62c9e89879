// What a rank hands to operations between ranks in a step, in bytes: known from the plan, before anything runs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <fathom/comm/request.hpp>

namespace fathom::cost {

/// The ranks that an operation is between: those of a link of comm::mesh_links, or some of them.
enum class among : std::uint8_t {
    world,
    tensor,
    context,
    replica,
    data,
    stage,
    pipeline,
    ends,
    expert,
    expert_tensor,
    expert_copies
};
inline constexpr int among_count = 11;
/// As links are called.
[[nodiscard]] constexpr const char* name_of(among ranks) {
    constexpr const char* names[] = {"world",    "tensor", "context", "replica",       "data",         "stage",
                                     "pipeline", "ends",   "expert",  "expert tensor", "expert copies"};
    return names[static_cast<int>(ranks)];
}

/// Bytes by the ranks that an operation is between and by its kind, as comm::request::bytes counts them.
struct byte_table {
    std::array<std::array<integer, comm::operations_count>, among_count> bytes{};

    constexpr void add(among ranks, comm::operation kind, integer count) { at(ranks, kind) += count; }
    [[nodiscard]] constexpr integer operator()(among ranks, comm::operation kind) const {
        return bytes[static_cast<std::size_t>(ranks)][static_cast<std::size_t>(kind)];
    }
    [[nodiscard]] constexpr integer total(among ranks) const {
        integer sum = 0;
        for (const integer n : bytes[static_cast<std::size_t>(ranks)]) sum += n;
        return sum;
    }
    [[nodiscard]] constexpr integer total() const {
        integer sum = 0;
        for (int i = 0; i < among_count; ++i) sum += total(static_cast<among>(i));
        return sum;
    }
    /// Adds `other`, `times` over.
    constexpr void add(const byte_table& other, integer times = 1) {
        for (std::size_t i = 0; i < bytes.size(); ++i)
            for (std::size_t k = 0; k < bytes[i].size(); ++k) bytes[i][k] += times * other.bytes[i][k];
    }

  private:
    constexpr integer& at(among ranks, comm::operation kind) {
        return bytes[static_cast<std::size_t>(ranks)][static_cast<std::size_t>(kind)];
    }
};

/// The traffic of a rank in a step. What tokens' choice of experts decides stands apart: a rank sends as many rows to
/// experts whatever they choose, but what it sends back is what it received.
struct traffic {
    byte_table fixed;       // whatever is chosen; where a capacity drops rows, the most
    byte_table of_row;      // for each row that this rank's experts receive
    byte_table repeated;    // the most that further rounds add, when rows exceed those reserved
    integer even_rows = 0;  // that its experts receive when all have the same load
    integer most_rows = 0;  // when all tokens choose this rank's

    [[nodiscard]] constexpr byte_table with(integer rows) const {
        byte_table sum = fixed;
        sum.add(of_row, rows);
        return sum;
    }
    [[nodiscard]] constexpr byte_table even() const { return with(even_rows); }
    [[nodiscard]] constexpr byte_table most() const {
        byte_table sum = with(most_rows);
        sum.add(repeated);
        return sum;
    }
};

}  // namespace fathom::cost
