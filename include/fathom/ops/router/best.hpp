// The largest few of many numbers; on a tie, the one that comes first.
#pragma once

#include <cstdint>
#include <fathom/core/bytes.hpp>

namespace fathom::ops::detail {

/// The `count` largest that were offered, largest first. Whatever was offered (NaN too), entries are distinct.
template <class A> class best {
  public:
    best(A* values, std::int32_t* places, integer count) : values_(values), places_(places), count_(count) {}

    void offer(A value, integer place) {
        if (held_ == count_ && !(value > values_[held_ - 1])) return;
        integer at = held_ < count_ ? held_++ : held_ - 1;
        for (; at > 0 && value > values_[at - 1]; --at) values_[at] = values_[at - 1], places_[at] = places_[at - 1];
        values_[at] = value;
        places_[at] = static_cast<std::int32_t>(place);
    }
    void sort_by_place() {
        for (integer i = 1; i < held_; ++i)
            for (integer j = i; j > 0 && places_[j] < places_[j - 1]; --j) {
                const auto place = places_[j];
                places_[j] = places_[j - 1];
                places_[j - 1] = place;
            }
    }

  private:
    A* values_;
    std::int32_t* places_;
    integer count_;
    integer held_ = 0;
};

}  // namespace fathom::ops::detail
