// Cosines and sines of every position and pair, computed once in double: a step only looks them up.
#pragma once

#include <cmath>
#include <fathom/ops/rotary/rope_facts.hpp>
#include <fathom/tensor/matrix.hpp>

namespace fathom::ops {

/// cosines, sines[positions, dim/2]: of position x inverse_frequency(pair), times attention_factor. Errors: those of
/// `check`; tables of another width.
template <class A> void rope_table(const rope_facts& facts, matrix<A> cosines, matrix<A> sines) {
    check(facts);
    for (const matrix<A>& table : {cosines, sines})
        if (table.width != facts.dim / 2 || table.rows != cosines.rows)
            fail("rope_table: found tables [", table.rows, ", ", table.width, "], expected [", cosines.rows, ", ",
                 facts.dim / 2, "]");
    const double factor = attention_factor(facts);
    for (integer pair = 0; pair < facts.dim / 2; ++pair) {
        const double frequency = inverse_frequency(facts, pair);
        for (integer position = 0; position < cosines.rows; ++position) {
            const double angle = static_cast<double>(position) * frequency;
            cosines(position, pair) = static_cast<A>(std::cos(angle) * factor);
            sines(position, pair) = static_cast<A>(std::sin(angle) * factor);
        }
    }
}

}  // namespace fathom::ops
