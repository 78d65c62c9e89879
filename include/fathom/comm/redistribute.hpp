// The collective that leads from one placement of a tensor to another, chosen by the types, so that nobody has to; its
// backward is the same from the gradient's placement to the other's.
#pragma once

#include <fathom/comm/all_gather.hpp>
#include <fathom/comm/all_reduce.hpp>
#include <fathom/comm/all_to_all.hpp>
#include <fathom/comm/mesh_links.hpp>
#include <fathom/comm/reduce_scatter.hpp>
#include <fathom/parallel/placement.hpp>

namespace fathom::comm {

namespace detail {

/// The change along the one mesh axis in which two placements differ.
struct placement_step {
    int changes = 0;
    bool innermost = true, named = true;
    mesh_axis over{};
    placed_as from{}, to{};
};
constexpr placement_step step_between(const fathom::detail::placement_facts& from,
                                      const fathom::detail::placement_facts& to) {
    placement_step step;
    for (int i = 0; i < fathom::detail::mesh_axes; ++i) {
        const auto a = static_cast<mesh_axis>(i);
        const bool cuts = from.of(a) == placed_as::rows || from.of(a) == placed_as::columns;
        const bool moved = cuts && from.of(a) == to.of(a) &&
                           from.place[static_cast<std::size_t>(i)] != to.place[static_cast<std::size_t>(i)];
        if (moved) step.innermost = false;
        if (from.of(a) == to.of(a)) continue;
        ++step.changes;
        step.innermost = step.innermost && from.innermost(a) && to.innermost(a);
        step.named = step.named && from.of(a) != placed_as::nothing && to.of(a) != placed_as::nothing;
        step.over = a, step.from = from.of(a), step.to = to.of(a);
    }
    return step;
}
inline const link& link_along(const mesh_links& ranks, mesh_axis a) {
    switch (a) {
        case mesh_axis::dp:
            return ranks.replica;
        case mesh_axis::cp:
            return ranks.context;
        case mesh_axis::tp:
            return ranks.tensor;
        case mesh_axis::ep:
            return ranks.expert;
        case mesh_axis::etp:
            return ranks.expert_tensor;
        case mesh_axis::pp:
            break;
    }
    return ranks.pipeline;
}
template <class T> void copy(matrix<T> to, matrix<const T> from) {
    for (integer r = 0; r < from.rows; ++r)
        for (integer c = 0; c < from.width; ++c) to(r, c) = from(r, c);
}
/// One of n equal parts of a matrix, by rows or by columns.
template <class T> matrix<T> part_of(matrix<T> x, bool by_rows, integer n, integer i) {
    return by_rows ? x.rows_at(i * (x.rows / n), x.rows / n) : x.columns_at(i * (x.width / n), x.width / n);
}
/// Collectives take parts one after another; those of columns are not, and go by way of `room`.
template <class T> matrix<T> packed_part(T* room, matrix<T> x, integer n, integer i) {
    return {room + i * (x.size() / n), x.rows, x.width / n};
}
template <class T>
void redistribute(const link& ranks, const placement_step& step, matrix<const T> x, matrix<T> y, matrix<T> room,
                  const char* label) {
    const integer n = ranks.size(), me = ranks.rank();
    const auto expect = [&](bool sound) {
        if (!sound)
            fail("redistribute (", label, "): found x[", x.rows, ", ", x.width, "] and y[", y.rows, ", ", y.width,
                 "] on ", n, " ranks, expected the shapes of one tensor, in parts of one size");
    };
    const auto cut = [](placed_as as) { return as == placed_as::rows || as == placed_as::columns; };
    const auto rows_of = [&](matrix<const T> v, placed_as as) { return as == placed_as::rows ? v.rows * n : v.rows; };
    const auto width_of = [&](matrix<const T> v, placed_as as) {
        return as == placed_as::columns ? v.width * n : v.width;
    };
    expect(rows_of(x, step.from) == rows_of(y, step.to) && width_of(x, step.from) == width_of(y, step.to) &&
           x.contiguous() && y.contiguous());
    if (n == 1 || x.size() == 0) return copy<T>(y, x);
    const bool from_rows = step.from == placed_as::rows, to_rows = step.to == placed_as::rows;
    const bool talks_in_columns = (step.from == placed_as::columns && step.to != placed_as::summand) ||
                                  (step.to == placed_as::columns && step.from != placed_as::replica);
    const integer most = x.size() > y.size() ? x.size() : y.size();
    if (talks_in_columns && room.size() < most)
        fail("redistribute (", label, "): found room for ", room.size(), " numbers, expected ", most,
             ": parts of columns are put one after another there");
    const auto pack = [&] {
        for (integer i = 0; i < n; ++i)
            copy<T>(packed_part<T>(room.data, {room.data, x.rows, x.width}, n, i), part_of(x, false, n, i));
        return static_cast<const T*>(room.data);
    };
    const auto unpack = [&] {
        for (integer i = 0; i < n; ++i) copy<T>(part_of(y, false, n, i), packed_part<T>(room.data, y, n, i));
    };
    if (cut(step.from) && cut(step.to)) {
        ranks.run(all_to_all(from_rows ? pack() : x.data, from_rows ? y.data : room.data, x.size() / n).from(label));
        if (!from_rows) unpack();
    } else if (cut(step.from) && step.to == placed_as::replica) {
        ranks.run(all_gather(x.data, from_rows ? y.data : room.data, x.size()).from(label));
        if (!from_rows) unpack();
    } else if (step.from == placed_as::summand && cut(step.to)) {
        ranks.run(reduce_scatter(to_rows ? x.data : pack(), y.data, y.size()).from(label));
    } else if (step.from == placed_as::replica && cut(step.to)) {
        copy<T>(y, part_of(x, to_rows, n, me));
    } else {
        for (integer i = 0; i < y.size(); ++i) y.data[i] = 0;
        if (cut(step.from))
            copy<T>(part_of(y, from_rows, n, me), x);
        else if (step.from == placed_as::summand || me == 0)
            copy<T>(y, x);
        if (step.from == placed_as::summand) ranks.run(all_reduce(y.data, y.size()).from(label));
    }
}

}  // namespace detail

namespace rule {

template <class From, class To> struct redistribution_is_one_step {
    static constexpr bool same_axes =
        std::is_same_v<typename From::tensor_type::rows_axis, typename To::tensor_type::rows_axis> &&
        std::is_same_v<typename From::tensor_type::columns_axis, typename To::tensor_type::columns_axis>;
    static constexpr detail::placement_step step = detail::step_between(From::facts, To::facts);
    static_assert(same_axes, "fathom: redistribute<> got another tensor. fix: let both placements have the same axes.");
    static_assert(!same_axes || step.changes == 1 || (step.changes == 0 && !step.innermost),
                  "fathom: redistribute<> moves a tensor along one mesh axis at a time. fix: write one for each axis "
                  "whose placement changes.");
    static_assert(!same_axes || step.changes != 1 || step.named,
                  "fathom: redistribute<> does not know what a mesh axis has of the tensor. fix: name the axis in both "
                  "placements: in shard<>, replicate<> or sum_over<>.");
    static_assert(!same_axes || step.changes > 1 || !step.named || step.innermost,
                  "fathom: redistribute<> moves a mesh axis that others cut within. fix: begin with the last one of "
                  "shard<>.");
    static constexpr bool holds = same_axes && step.changes == 1 && step.named && step.innermost;
};

}  // namespace rule

/// Fills `y`, placed as To says, from `x`: by all_gather, reduce_scatter, all_reduce or all_to_all along the mesh axis
/// in which the placements differ, or by this rank's part alone (a copy to a shard, a shard or a copy to a sum). All
/// ranks along that axis call it together. Parts have one size. Where columns are cut or put together between ranks,
/// `room` holds as many numbers as the larger of the two; it and `y` are apart from `x`. Host memory.
///
/// Its backward is `redistribute<typename From::dual>` of the gradient, which is placed as `To::dual`.
template <class To, class From, class T = std::remove_const_t<typename From::tensor_type::element>>
To redistribute(const mesh_links& ranks, From x, std::type_identity_t<matrix<T>> y,
                std::type_identity_t<matrix<T>> room = {}, const char* label = "") {
    using possible = rule::redistribution_is_one_step<From, To>;
    if constexpr (possible::holds)
        detail::redistribute<T>(detail::link_along(ranks, possible::step.over), possible::step, x.share(), y, room,
                                label);
    return To{typename To::tensor_type{y}};
}

}  // namespace fathom::comm
