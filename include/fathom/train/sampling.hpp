// How the next token is drawn from logits: temperature and nucleus, with random numbers that depend on a seed and a
// place alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fathom/core/bytes.hpp>
#include <fathom/core/error.hpp>
#include <fathom/core/random_stream.hpp>
#include <fathom/optim/gradient_norm.hpp>
#include <span>

namespace fathom::train {

/// temperature 0 takes the most likely token (the first of equals). top_p keeps the fewest tokens, most likely first,
/// whose probabilities sum to at least it (Holtzman et al., "The curious case of neural text degeneration", 2020).
struct sampling {
    double temperature = 1;
    double top_p = 1;
    std::uint64_t seed = 0;
};

/// Errors: a temperature that is negative or no number, a top_p outside (0, 1].
inline void check(const sampling& s) {
    if (!(s.temperature >= 0) || !std::isfinite(s.temperature))
        fail("sampling: found temperature ", s.temperature, ", expected a number of at least 0");
    if (!(s.top_p > 0 && s.top_p <= 1)) fail("sampling: found top_p ", s.top_p, ", expected a number in (0, 1]");
}

/// A token and how likely it is.
struct candidate {
    double probability = 0;
    std::int32_t token = 0;

    /// Less likely, or as likely and later.
    [[nodiscard]] bool operator<(const candidate& other) const {
        return probability != other.probability ? probability < other.probability : token > other.token;
    }
};

/// Draws a token by random_stream{seed, stream}.uniform(place). logits[vocab_size]; `scratch` has as many places.
/// Errors: a logit that is not finite; those of `check`.
template <class A>
std::int32_t sample(std::span<const A> logits, const sampling& how, std::uint64_t stream, std::uint64_t place,
                    std::span<candidate> scratch) {
    check(how);
    for (std::size_t i = 0; i < logits.size(); ++i)
        if (!optim::detail::is_finite(logits[i]))
            fail("sampling: found logit ", i, " to be ", logits[i], ", expected a finite number");
    const auto most = std::max_element(logits.begin(), logits.end());
    if (how.temperature == 0) return static_cast<std::int32_t>(most - logits.begin());
    auto kept = scratch.begin();
    const auto end = kept + static_cast<std::ptrdiff_t>(logits.size());
    double sum = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        const double below = static_cast<double>(logits[i]) - static_cast<double>(*most);
        scratch[i] = {std::exp(below / how.temperature), static_cast<std::int32_t>(i)};
        sum += scratch[i].probability;
    }
    if (how.top_p < 1) {  // a heap gives the most likely first, so what is cut is never sorted
        std::make_heap(kept, end);
        double taken = 0;
        auto rest = end;
        while (rest != kept && taken < how.top_p * sum) {
            std::pop_heap(kept, rest--);
            taken += rest->probability;
        }
        kept = rest;
        sum = taken;
    }
    double left = random_stream{how.seed, stream}.uniform(place) * sum;
    std::int32_t drawn = 0;
    for (; kept != end; ++kept) {
        if (kept->probability == 0) continue;
        drawn = kept->token;
        if (left < kept->probability) break;
        left -= kept->probability;
    }
    return drawn;
}

}  // namespace fathom::train
