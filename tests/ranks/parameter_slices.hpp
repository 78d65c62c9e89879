// What tests of split layers share: a rank's slices of a whole layer's numbers, and one worker with its scratch.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "../unit/nn/layers.hpp"

namespace fathom::test {

/// A queue of one worker, as ranks that are threads have it.
class one_worker {
  public:
    explicit one_worker(integer scratch_bytes)
        : pool_(1),
          scratch_(round_up(scratch_bytes, arena::alignment) + arena::alignment),
          queue(pool_, scratch_.arena().template take<std::byte>(0), round_up(scratch_bytes, arena::alignment)) {}

  private:
    host::workers pool_;
    block_of_memory scratch_;

  public:
    host::queue queue;
};

template <class Layer> std::vector<nn::storage> storages_of(const Layer& layer) {
    std::vector<nn::storage> all;
    typename Layer::template parameters<double> none{};
    layer.each_parameter(none, [&](auto&, const nn::storage& facts, auto...) { all.push_back(facts); });
    return all;
}

/// call(storage, number of the whole, number of the slice) for every number of the parameters that `mine` holds.
template <class Whole, class Mine, class Call> void each_number(const Whole& whole, const Mine& mine, Call&& call) {
    const auto all = storages_of(whole), slices = storages_of(mine);
    REQUIRE(all.size() == slices.size());
    for (std::size_t s = 0; s < all.size(); ++s) {
        CHECK(slices[s].whole_width() == all[s].width);
        for (std::size_t n = 0; n < slices[s].parts.size(); ++n) {
            const nn::part &part = slices[s].parts[n], &from = all[s].parts[n];
            if (part.name == nullptr) continue;
            CHECK(part.whole_rows() == from.rows);
            for (integer i = 0; i < part.count; ++i)
                for (integer r = 0; r < part.rows; ++r)
                    for (integer c = 0; c < slices[s].width; ++c) {
                        const integer row = from.first + (part.number + i) * from.step + part.row + r;
                        call(s, static_cast<std::size_t>(row * all[s].width + slices[s].column + c),
                             static_cast<std::size_t>((part.first + i * part.step + r) * slices[s].width + c));
                    }
        }
    }
}
/// Gives a rank its slices of a whole layer's numbers.
template <class Whole, class Mine>
void take_slices(const Whole& whole, const parameter_numbers<double>& from, const Mine& mine,
                 parameter_numbers<double>& to) {
    each_number(whole, mine, [&](std::size_t s, std::size_t of_whole, std::size_t of_mine) {
        to.all[s]->numbers[of_mine] = from.all[s]->numbers[of_whole];
    });
}
/// Adds a rank's numbers to a whole layer's.
template <class Whole, class Mine>
void add_slices(const Whole& whole, parameter_numbers<double>& to, const Mine& mine,
                const parameter_numbers<double>& from) {
    each_number(whole, mine, [&](std::size_t s, std::size_t of_whole, std::size_t of_mine) {
        to.all[s]->numbers[of_whole] += from.all[s]->numbers[of_mine];
    });
}

/// max|a - b| / max|b|, with a floor for what is zero but for rounding: the slopes of queries that see one key.
inline double apart(const std::vector<double>& a, const std::vector<double>& b) {
    REQUIRE(a.size() == b.size());
    double most = 0, largest = 1e-3;
    for (std::size_t i = 0; i < a.size(); ++i) {
        most = std::isfinite(a[i]) ? std::max(most, std::fabs(a[i] - b[i])) : INFINITY;
        largest = std::max(largest, std::fabs(b[i]));
    }
    return most / largest;
}
/// The largest of these over all parameters.
inline double apart(const parameter_numbers<double>& a, const parameter_numbers<double>& b) {
    double most = 0;
    for (std::size_t s = 0; s < b.all.size(); ++s) {
        const double here = apart(a.all[s]->numbers, b.all[s]->numbers);
        INFO(b.all[s]->name);
        CHECK(here < 1e-10);
        most = std::max(most, here);
    }
    return most;
}

}  // namespace fathom::test
