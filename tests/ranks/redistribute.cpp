// Every step from one placement to another: the numbers are those of the one tensor, and backward is the transpose.
#include <doctest/doctest.h>

#include <cmath>
#include <fathom/comm.hpp>
#include <fathom/core/random_stream.hpp>
#include <functional>
#include <vector>

#include "../unit/scratch_folder.hpp"

namespace fathom {
namespace {

constexpr integer rows = 8, width = 12;
using stream = tensor<double, axis::tokens, axis::hidden>;
template <class... Words> using at = placed<stream, Words...>;

/// Where a rank stands along a mesh axis.
integer place_along(const comm::mesh_links& ranks, mesh_axis a) {
    return a == mesh_axis::tp    ? ranks.at.tp
           : a == mesh_axis::cp  ? ranks.at.cp
           : a == mesh_axis::ep  ? ranks.at.ep
           : a == mesh_axis::etp ? ranks.at.etp
                                 : ranks.at.dp;
}

/// What one rank has of a tensor.
template <class Placed> class held {
  public:
    explicit held(const degrees& d) : rows_(rows), width_(width) {
        for (int i = 0; i < detail::mesh_axes; ++i) {
            const auto a = static_cast<mesh_axis>(i);
            if (Placed::facts.of(a) == placed_as::rows) rows_ /= d.of(a);
            if (Placed::facts.of(a) == placed_as::columns) width_ /= d.of(a);
        }
        numbers_.resize(static_cast<std::size_t>(rows_ * width_), std::nan(""));
    }
    /// This rank's part of a tensor whose number (r, c) is drawn by a seed; of a sum, every rank draws a summand.
    held(const comm::mesh_links& ranks, std::uint64_t seed) : held(ranks.of) {
        const integer first_row = first(ranks, placed_as::rows), first_column = first(ranks, placed_as::columns);
        for (integer r = 0; r < rows_; ++r)
            for (integer c = 0; c < width_; ++c) view()(r, c) = drawn(ranks, seed, first_row + r, first_column + c);
    }
    [[nodiscard]] matrix<double> view() { return {numbers_.data(), rows_, width_}; }
    [[nodiscard]] Placed placed_view() { return Placed{stream{view()}}; }
    [[nodiscard]] const std::vector<double>& numbers() const { return numbers_; }
    [[nodiscard]] integer first(const comm::mesh_links& ranks, placed_as how) const {
        integer part = 0;
        for (int place = 0; place < 4; ++place)
            for (int i = 0; i < detail::mesh_axes; ++i) {
                const auto a = static_cast<mesh_axis>(i);
                if (Placed::facts.of(a) == how && Placed::facts.place[static_cast<std::size_t>(i)] == place)
                    part = part * ranks.of.of(a) + place_along(ranks, a);
            }
        return part * (how == placed_as::rows ? rows_ : width_);
    }

  private:
    static double drawn(const comm::mesh_links& ranks, std::uint64_t seed, integer r, integer c) {
        std::uint64_t summand = 0;
        for (int i = 0; i < detail::mesh_axes; ++i) {
            const auto a = static_cast<mesh_axis>(i);
            if (Placed::facts.of(a) == placed_as::summand)
                summand = 16 * summand + static_cast<std::uint64_t>(place_along(ranks, a)) + 1;
        }
        return random_stream{seed, summand}.uniform(static_cast<std::uint64_t>(r * width + c)) - 0.5;
    }

    integer rows_, width_;
    std::vector<double> numbers_;
};

/// The sum over all ranks of the product of what they have: a tensor times a gradient that is placed as its dual.
double inner(const comm::mesh_links& ranks, const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    ranks.world.run(comm::all_reduce(&sum, 1));
    return sum;
}
/// Puts a tensor together on all ranks, by nothing but sums over the world.
template <class Placed> std::vector<double> together(const comm::mesh_links& ranks, held<Placed>& x) {
    std::vector<double> whole(static_cast<std::size_t>(rows * width));
    double copies = static_cast<double>(ranks.world.size());
    for (int i = 0; i < detail::mesh_axes; ++i) {
        const auto a = static_cast<mesh_axis>(i);
        const placed_as how = Placed::facts.of(a);
        if (how != placed_as::nothing && how != placed_as::replica) copies /= static_cast<double>(ranks.of.of(a));
    }
    const integer row = x.first(ranks, placed_as::rows), column = x.first(ranks, placed_as::columns);
    for (integer r = 0; r < x.view().rows; ++r)
        for (integer c = 0; c < x.view().width; ++c)
            whole[static_cast<std::size_t>((row + r) * width + column + c)] = x.view()(r, c) / copies;
    ranks.world.run(comm::all_reduce(whole.data(), rows * width));
    return whole;
}

void on_ranks(const degrees& d, const std::function<void(const comm::mesh_links&)>& work) {
    comm::threads::run(d.ranks(), [&](auto& mine) { work(comm::mesh_links{comm::link{mine}, d}); });
}
template <class From, class To> void check_step(const comm::mesh_links& ranks, comm::operation expected) {
    std::vector<double> room(static_cast<std::size_t>(rows * width));
    const matrix<double> space{room.data(), rows, width};
    held<From> x{ranks, 1}, back{ranks.of};
    held<To> y{ranks.of};
    using dual_from = typename From::dual;
    using dual_to = typename To::dual;
    held<dual_to> dy{ranks, 2};
    held<dual_from> dx{ranks.of};
    const integer before = ranks.bytes(expected);
    comm::redistribute<To>(ranks, x.placed_view(), y.view(), space, "forward");
    if (expected != comm::operation::barrier) CHECK(ranks.bytes(expected) > before);
    comm::redistribute<dual_from>(ranks, dy.placed_view(), dx.view(), space, "backward");
    const std::vector<double> was = together(ranks, x), is = together(ranks, y);
    for (std::size_t i = 0; i < was.size(); ++i) CHECK(std::abs(was[i] - is[i]) < 1e-14);
    CHECK(std::abs(inner(ranks, y.numbers(), dy.numbers()) - inner(ranks, x.numbers(), dx.numbers())) < 1e-12);
    comm::redistribute<From>(ranks, y.placed_view(), back.view(), space, "and back");
    const std::vector<double> again = together(ranks, back);
    for (std::size_t i = 0; i < was.size(); ++i) CHECK(std::abs(was[i] - again[i]) < 1e-14);
    if constexpr (!is_partial<From>) CHECK(back.numbers() == x.numbers());
}

template <mesh_axis A> void check_steps(const comm::mesh_links& ranks) {
    using by_rows = at<shard<axis::tokens, A>>;
    using by_columns = at<shard<axis::hidden, A>>;
    using copies = at<replicate<A>>;
    using summands = at<sum_over<A>>;
    using comm::operation;
    check_step<by_rows, copies>(ranks, operation::all_gather);
    check_step<by_columns, copies>(ranks, operation::all_gather);
    check_step<by_rows, by_columns>(ranks, operation::all_to_all);
    check_step<by_columns, by_rows>(ranks, operation::all_to_all);
    check_step<summands, copies>(ranks, operation::all_reduce);
    check_step<summands, by_rows>(ranks, operation::reduce_scatter);
    check_step<summands, by_columns>(ranks, operation::reduce_scatter);
    check_step<copies, by_rows>(ranks, operation::barrier);
    check_step<copies, by_columns>(ranks, operation::barrier);
    check_step<copies, summands>(ranks, operation::barrier);
    check_step<by_rows, summands>(ranks, operation::barrier);
    check_step<by_columns, summands>(ranks, operation::barrier);
}

}  // namespace

TEST_CASE("redistribute: every step along every axis") {
    on_ranks({.tp = 2}, &check_steps<mesh_axis::tp>);
    on_ranks({.tp = 4}, &check_steps<mesh_axis::tp>);
    on_ranks({.tp = 2, .cp = 2}, &check_steps<mesh_axis::cp>);
    on_ranks({.dp = 2, .tp = 2}, &check_steps<mesh_axis::dp>);
    on_ranks({.dp = 4, .ep = 2, .etp = 2}, &check_steps<mesh_axis::ep>);
    on_ranks({.dp = 4, .ep = 2, .etp = 2}, &check_steps<mesh_axis::etp>);
}
TEST_CASE("redistribute: an axis within another, both axes of a tensor, and sums beside") {
    on_ranks({.tp = 2, .cp = 2}, [](const comm::mesh_links& ranks) {
        check_step<at<shard<axis::tokens, mesh_axis::cp, mesh_axis::tp>>,
                   at<shard<axis::tokens, mesh_axis::cp>, replicate<mesh_axis::tp>>>(ranks,
                                                                                     comm::operation::all_gather);
        check_step<at<shard<axis::tokens, mesh_axis::cp>, sum_over<mesh_axis::tp>>,
                   at<shard<axis::tokens, mesh_axis::cp, mesh_axis::tp>>>(ranks, comm::operation::reduce_scatter);
        check_step<at<shard<axis::tokens, mesh_axis::cp, mesh_axis::tp>>,
                   at<shard<axis::tokens, mesh_axis::cp>, shard<axis::hidden, mesh_axis::tp>>>(
            ranks, comm::operation::all_to_all);
        check_step<at<sum_over<mesh_axis::cp, mesh_axis::tp>>, at<sum_over<mesh_axis::tp>, replicate<mesh_axis::cp>>>(
            ranks, comm::operation::all_reduce);
    });
}
TEST_CASE("redistribute: parts that are not of one size, and no room") {
    const auto tried = [](integer x_rows, integer y_rows, bool room) {
        return test::message_of([&] {
            comm::threads::run(2, [&](auto& mine) {
                const comm::mesh_links ranks{comm::link{mine}, {.tp = 2}};
                double x[rows * width] = {}, y[rows * width], space[rows * width];
                const matrix<double> there = room ? matrix<double>{space, rows, width} : matrix<double>{};
                using part = at<shard<axis::hidden, mesh_axis::tp>>;
                comm::redistribute<at<replicate<mesh_axis::tp>>>(ranks, part{stream{matrix<double>{x, x_rows, 6}}},
                                                                 {y, y_rows, width}, there, "heads");
            });
        });
    };
    CHECK(tried(4, 4, true) == "no error");
    CHECK(tried(4, 3, true)
              .find("redistribute (heads): found x[4, 6] and y[3, 12] on 2 ranks, expected the shapes of "
                    "one tensor, in parts of one size") != std::string::npos);
    CHECK(tried(4, 4, false).find("redistribute (heads): found room for 0 numbers, expected 48") != std::string::npos);
}

}  // namespace fathom
