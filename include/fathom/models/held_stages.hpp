// Which blocks of a model a rank holds, as the stages of a pipeline.
#pragma once

#include <algorithm>
#include <array>
#include <fathom/core/bytes.hpp>

namespace fathom::models {

/// One stage of a pipeline: blocks [first, first + count) of the model, and whether it begins with the embedding and
/// ends with the head (and all modules of multi-token prediction).
struct stage {
    integer first = 0;
    integer count = integer{1} << 40;
    bool embedding = true;
    bool head = true;
};
/// The stages that a rank holds, as its schedule numbers them: the whole model, where nothing else is said.
struct held_stages {
    static constexpr integer most = 9;
    std::array<stage, most> each{};
    integer count = 1;
    bool falling = false;  // the later chunk is the earlier stage

    [[nodiscard]] constexpr const stage& operator[](integer chunk) const {
        return each[static_cast<std::size_t>(chunk)];
    }
    /// The n-th chunk in the order of layers.
    [[nodiscard]] constexpr integer in_order(integer n) const { return falling ? count - 1 - n : n; }
    /// How many of layers [first, first + count) a chunk holds, and from which on.
    [[nodiscard]] constexpr stage part(integer chunk, integer first, integer count_of) const {
        const stage& here = (*this)[chunk];
        const integer begin = std::max(first, here.first), end = std::min(first + count_of, here.first + here.count);
        return {.first = begin, .count = std::max<integer>(end - begin, 0)};
    }
    [[nodiscard]] constexpr integer total(integer first, integer count_of) const {
        integer n = 0;
        for (integer c = 0; c < count; ++c) n += part(c, first, count_of).count;
        return n;
    }
    [[nodiscard]] constexpr bool embedding() const { return any(&stage::embedding); }
    [[nodiscard]] constexpr bool head() const { return any(&stage::head); }

  private:
    [[nodiscard]] constexpr bool any(bool stage::*what) const {
        for (integer c = 0; c < count; ++c)
            if ((*this)[c].*what) return true;
        return false;
    }
};

/// A block where it lies: its place among the blocks of its kind that this rank holds, among those of its chunk, and
/// its number in the model.
struct layer_place {
    integer here = 0;
    integer in_chunk = 0;
    integer number = 0;
};

}  // namespace fathom::models
