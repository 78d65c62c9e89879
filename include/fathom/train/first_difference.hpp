// Where two runs part: the first tensor of a step that differs, of what layer and on which rank.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fathom/train/recorded_step.hpp>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fathom::train {

/// A tensor that a run has otherwise than another.
struct step_difference {
    recorded_tensor::kind what = recorded_tensor::kind::forward;
    std::string tensor;
    integer layer = -1;          // -1: outside of layers
    std::string operation;       // of forward
    bool of_first = true;        // whose ranks these are: the first run's, or the second's (of copies that only it has)
    std::vector<integer> ranks;  // whose part differs, the most different one first
    integer row = 0, column = 0;     // of the largest difference
    double found = 0, expected = 0;  // there
    double ratio = 0;                // max|a - b| of that rank's part over max|b|; infinite with a NaN
};

/// "forward of layer 2, o_proj and residual: layers.2.attention differs by 0.013 on rank 3 (and 1): [17, 4] is 0.52,
/// expected 0.51"
inline std::string describe(const step_difference& d) {
    using kind = recorded_tensor::kind;
    std::string text = d.what == kind::weight    ? "weights of "
                       : d.what == kind::forward ? "forward of "
                                                 : "backward of ";
    text += d.layer >= 0 ? text_of("layer ", d.layer) : "what is outside of layers";
    if (!d.operation.empty()) text += ", " + d.operation;
    text += text_of(": ", d.what == kind::gradient ? "gradient of " : "", d.tensor);
    const auto number = [](const char* format, double x) {
        char room[32];
        std::snprintf(room, sizeof room, format, x);
        return std::string{room};
    };
    text += " differs by " + number("%.3g", d.ratio) + text_of(" on rank ", d.ranks[0]);
    for (std::size_t i = 1; i < d.ranks.size(); ++i) text += text_of(i == 1 ? " (and " : ", ", d.ranks[i]);
    if (d.ranks.size() > 1) text += ')';
    text += d.of_first ? " of the first" : " of the second";
    return text + text_of(": [", d.row, ", ", d.column, "] is ") + number("%.17g", d.found) + ", expected " +
           number("%.17g", d.expected);
}

namespace detail {

/// The largest number of a tensor, by size.
inline double largest_of(const recorded_tensor& t) {
    double largest = 0;
    for (const recorded_tensor::piece& p : t.pieces)
        for (const double x : p.values)
            if (!std::isnan(x)) largest = std::max(largest, std::abs(x));
    return largest;
}

/// How every rank's pieces of a tensor differ from the whole that another run has.
inline std::optional<step_difference> difference_of(const recorded_tensor& a, const recorded_tensor& b, double largest,
                                                    double bound) {
    const std::vector<double> expected = b.whole().first;
    std::map<integer, step_difference> by_rank;
    for (const recorded_tensor::piece& p : a.pieces) {
        step_difference& d = by_rank[p.rank];
        for (integer i = 0; i < p.rows * p.columns; ++i) {
            const integer row = p.row + i / p.columns, column = p.column + i % p.columns;
            const double x = p.values[static_cast<std::size_t>(i)];
            const double y = expected[static_cast<std::size_t>(row * b.columns + column)];
            const double apart = x == y ? 0 : std::abs(x - y) / largest;
            // Not a number is as far as anything can be.
            const double ratio = std::isnan(apart) ? std::numeric_limits<double>::infinity() : apart;
            if (ratio <= d.ratio) continue;
            d.ratio = ratio, d.row = row, d.column = column, d.found = x, d.expected = y;
        }
    }
    std::optional<step_difference> worst;
    std::vector<integer> ranks;
    for (const auto& [rank, d] : by_rank) {
        if (d.ratio <= bound) continue;
        if (!worst || d.ratio > worst->ratio) {
            worst = d;
            ranks.insert(ranks.begin(), rank);
        } else {
            ranks.push_back(rank);
        }
    }
    if (worst) {
        worst->what = a.what, worst->tensor = a.name, worst->layer = a.layer, worst->operation = a.operation;
        worst->ranks = ranks;
    }
    return worst;
}

}  // namespace detail

/// The first tensor of which any rank of `a` or of `b` has numbers that differ from the other run's by more than
/// `bound` x its largest one: weights first, then what forward made, then gradients in the order of backward; nothing
/// where all agree. Of what tensor ranks sum, all of them have the sum: a fault of one rank's part shows on all. Only
/// tensors that both have are compared. Errors: another shape; no tensor that both have.
inline std::optional<step_difference> first_difference(const recorded_step& a, const recorded_step& b, double bound) {
    bool any = false;
    for (const recorded_tensor* mine : a.in_order()) {
        const recorded_tensor* other = b.find(mine->key());
        if (other == nullptr) continue;
        any = true;
        if (mine->rows != other->rows || mine->columns != other->columns)
            fail("first_difference: ", mine->key(), ": found [", mine->rows, ", ", mine->columns, "], expected [",
                 other->rows, ", ", other->columns, "] as the other run has it");
        const double largest = detail::largest_of(*other);
        if (auto found = detail::difference_of(*mine, *other, largest, bound)) return found;
        if (auto found = detail::difference_of(*other, *mine, largest, bound)) {
            found->of_first = false;
            return found;
        }
    }
    if (!any) fail("first_difference: found no tensor that both runs have, expected some");
    return std::nullopt;
}

}  // namespace fathom::train
