// The largest few of many numbers; on a tie, the one that comes first.
#pragma once

#include <cstdint>
#include <fathom/core/bytes.hpp>

namespace fathom::ops::detail {

/// The `count` largest that were offered, largest first. Whatever was offered (NaN too), entries are distinct.
template <class A> class best {
  public:
    best(A* values, std::int32_t* places, index count) : values_(values), places_(places), count_(count) {}

    void offer(A value, index place) {
        if (held_ == count_ && !(value > values_[held_ - 1])) return;
        index at = held_ < count_ ? held_++ : held_ - 1;
        for (; at > 0 && value > values_[at - 1]; --at) values_[at] = values_[at - 1], places_[at] = places_[at - 1];
        values_[at] = value;
        places_[at] = static_cast<std::int32_t>(place);
    }
    void sort_by_place() {
        for (index i = 1; i < held_; ++i)
            for (index j = i; j > 0 && places_[j] < places_[j - 1]; --j) {
                const auto place = places_[j];
                places_[j] = places_[j - 1];
                places_[j - 1] = place;
            }
    }

  private:
    A* values_;
    std::int32_t* places_;
    index count_;
    index held_ = 0;
};

}  // namespace fathom::ops::detail
