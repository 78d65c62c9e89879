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
/// step. In the name of a stack, `*` stands for n. Where ranks split it, these are what this rank holds of it.
struct part {
    const char* name = nullptr;
    integer rows = 0;
    integer first = 0;
    integer count = 1;
    integer step = 0;
    integer row = 0;       // of the whole matrix, where this rank's rows begin
    integer of_rows = 0;   // of the whole matrix; 0: all are here
    integer number = 0;    // of the whole stack, where this rank's matrices begin
    integer of_count = 0;  // of the whole stack; 0: all are here
    integer copies = 0;    // adjacent tensor ranks that hold the same; 0: all do

    [[nodiscard]] constexpr integer whole_rows() const { return of_rows != 0 ? of_rows : rows; }
    [[nodiscard]] constexpr integer whole_count() const { return of_count != 0 ? of_count : count; }
};

/// A parameter's storage: rows x width numbers, cut into parts without gap or overlap.
struct storage {
    integer rows = 0;
    integer width = 0;
    initial start = initial::normal;
    bool vector =
        false;  // rows of one number, stored in checkpoints with one dimension: gains and biases; views have one row
    std::array<part, 3> parts{};
    integer column = 0;       // of the whole matrices, where this rank's columns begin
    integer of_width = 0;     // of the whole matrices; 0: all are here
    bool of_experts = false;  // split over expert ranks, not over tensor ranks
    integer layer = -1;       // number of its block in the model; -1: outside all

    [[nodiscard]] constexpr integer size() const { return rows * width; }
    [[nodiscard]] constexpr integer whole_width() const { return of_width != 0 ? of_width : width; }
};

/// How many ranks split a layer, and which of them this is.
struct split_over {
    integer ranks = 1;
    integer rank = 0;
    /// This rank's share of what divides evenly.
    [[nodiscard]] constexpr integer share(integer whole) const { return whole / ranks; }
};
/// The part that holds this rank's rows of a matrix.
constexpr part rows_over(split_over over, part whole) {
    if (over.ranks == 1) return whole;
    whole.of_rows = whole.rows;
    whole.rows = over.share(whole.rows);
    whole.row = over.rank * whole.rows;
    whole.copies = 1;
    return whole;
}
/// The storage that holds this rank's columns of its matrices.
constexpr storage columns_over(split_over over, storage whole) {
    if (over.ranks == 1) return whole;
    whole.of_width = whole.width;
    whole.width = over.share(whole.width);
    whole.column = over.rank * whole.width;
    for (part& p : whole.parts) p.copies = 1;
    return whole;
}

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
