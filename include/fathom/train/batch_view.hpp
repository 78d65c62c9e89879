// The tokens of a step as any loader can give them: plain pointers, checked before they are used.
#pragma once

#include <cstdint>
#include <fathom/core/bytes.hpp>
#include <fathom/core/error.hpp>

namespace fathom::train {

/// [sequences, length] ids, and for each the target that it predicts (labels already shifted; -100 is ignored).
/// `positions` (place in its document) may be null: 0, 1, 2, ... in every sequence. `starts` (index in the sequence of
/// the first token that may be attended) may be null: attention goes over the whole sequence.
struct batch_view {
    integer sequences = 0;
    integer length = 0;
    const std::int32_t* tokens = nullptr;
    const std::int32_t* targets = nullptr;
    const std::int32_t* positions = nullptr;
    const std::int32_t* starts = nullptr;
};

inline constexpr std::int32_t ignored = -100;

/// Errors: a shape outside the recipe's, or an id, target, position or start outside its range; names the place and the
/// range.
inline void check(const batch_view& b, integer most_length, integer depths, integer vocab_size, integer positions) {
    if (b.sequences < 1 || b.length <= depths || b.length > most_length || b.tokens == nullptr || b.targets == nullptr)
        fail("batch: found ", b.sequences, " sequences of ", b.length, " tokens, expected at least 1 sequence of ",
             depths + 1, " to ", most_length, " tokens with targets");
    for (integer i = 0; i < b.sequences * b.length; ++i) {
        const integer row = i / b.length, at = i % b.length;
        if (b.tokens[i] < 0 || b.tokens[i] >= vocab_size)
            fail("batch: token ", at, " of sequence ", row, " is ", b.tokens[i], ", expected an id in [0, ", vocab_size,
                 ")");
        if (b.targets[i] != ignored && (b.targets[i] < 0 || b.targets[i] >= vocab_size))
            fail("batch: target ", at, " of sequence ", row, " is ", b.targets[i], ", expected an id in [0, ",
                 vocab_size, ") or ", ignored);
        if (b.positions != nullptr && (b.positions[i] < 0 || b.positions[i] >= positions))
            fail("batch: position ", at, " of sequence ", row, " is ", b.positions[i], ", expected one in [0, ",
                 positions, ")");
        if (b.starts != nullptr && (b.starts[i] < 0 || b.starts[i] > at || (at > 0 && b.starts[i] < b.starts[i - 1])))
            fail(
                "batch: the start of token ", at, " of sequence ", row, " is ", b.starts[i],
                ", expected the index of its document's first token, at most its own and not before its predecessor's");
    }
}

}  // namespace fathom::train
