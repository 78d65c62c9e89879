// How a layer declares its parameters: one storage for matrices that a product reads together, with the names that
// checkpoints give its parts.
#pragma once

#include <array>
#include <cstdint>
#include <fathom/core/bytes.hpp>

namespace fathom::nn {

/// What a parameter is before the first step.
enum class initial : std::uint8_t { zero, one, normal };

/// One named matrix (or stack of matrices) inside a storage. Matrix n of `count` has `rows` rows from row first + n *
/// step. In the name of a stack, `*` stands for n.
struct part {
    const char* name = nullptr;
    integer rows = 0;
    integer first = 0;
    integer count = 1;
    integer step = 0;
};

/// A parameter's storage: rows x width numbers, cut into parts without gap or overlap.
struct storage {
    integer rows = 0;
    integer width = 0;
    initial start = initial::normal;
    bool vector =
        false;  // rows of one number, stored in checkpoints with one dimension: gains and biases; views have one row
    std::array<part, 3> parts{};

    [[nodiscard]] constexpr integer size() const { return rows * width; }
};

/// A matrix under one name.
constexpr storage weight(const char* name, integer rows, integer width) {
    return {.rows = rows, .width = width, .parts = {{{.name = name, .rows = rows}}}};
}
/// A gain: starts at one.
constexpr storage gain(const char* name, integer width) {
    return {
        .rows = width, .width = 1, .start = initial::one, .vector = true, .parts = {{{.name = name, .rows = width}}}};
}
/// A bias: starts at zero.
constexpr storage bias(const char* name, integer width) {
    return {
        .rows = width, .width = 1, .start = initial::zero, .vector = true, .parts = {{{.name = name, .rows = width}}}};
}

/// Passes the storages of an inner layer on to `visit`, with one more prefix to their names.
/// A visitor is called as visit(view, storage, prefixes...), outermost prefix first, in the order in which parameters
/// are numbered.
template <class Visit> struct below {
    const char* prefix;
    Visit& visit;
    constexpr void operator()(auto& view, const storage& facts, auto... prefixes) const {
        visit(view, facts, prefix, prefixes...);
    }
};

/// What the rows of a layer of experts are: row r, of expert e where offsets[e] <= r < offsets[e + 1], is of token
/// tokens[r].
struct grouped_rows {
    const std::int32_t* tokens = nullptr;
    const integer* offsets = nullptr;
};

}  // namespace fathom::nn
