// Published learning rate schedules under their names, and as text for options.
#pragma once

#include <charconv>
#include <fathom/core/error.hpp>
#include <fathom/optim/learning_rate_schedule.hpp>
#include <string_view>
#include <system_error>

namespace fathom::optim {

namespace schedules {

inline constexpr stretches constant{{curve::constant, 1, 1}};
/// To a tenth of the peak.
inline constexpr stretches cosine{{curve::cosine, 1, 0.1}};
/// Warm-up, stable, decay: the last fifth of the run goes to zero (Hägele et al. 2024).
inline constexpr stretches wsd{{curve::constant, 0.8, 1}, {curve::one_minus_sqrt, 1, 0}};
/// DeepSeek LLM (2024): 31.6 % after 80 % of the run, 10 % after 90 %.
inline constexpr stretches llm{{curve::constant, 0.8, 1}, {curve::constant, 0.9, 0.316}, {curve::constant, 1, 0.1}};
/// DeepSeekMoE and V2-Lite (2024): times 0.316 after 80 %, and again after 90 %.
inline constexpr stretches moe{
    {curve::constant, 0.8, 1}, {curve::constant, 0.9, 0.316}, {curve::constant, 1, 0.316 * 0.316}};
/// DeepSeek-V2 (2024): times 0.316 after 60 %, and again after 90 %.
inline constexpr stretches v2{
    {curve::constant, 0.6, 1}, {curve::constant, 0.9, 0.316}, {curve::constant, 1, 0.316 * 0.316}};
/// DeepSeek-V3 (2024): of 14.8T tokens the peak 2.2e-4 for 10T, a cosine to 2.2e-5 over 4.3T, that for 333B, and 7.3e-6
/// for the last 167B.
inline constexpr stretches v3{{curve::constant, 10 / 14.8, 1},
                              {curve::cosine, 14.3 / 14.8, 0.1},
                              {curve::constant, 14.633 / 14.8, 0.1},
                              {curve::constant, 1, 7.3e-6 / 2.2e-4}};

struct name {
    std::string_view word;
    const stretches& shape;
};
inline constexpr name names[] = {{"constant", constant}, {"cosine", cosine}, {"wsd", wsd}, {"llm", llm},
                                 {"moe", moe},           {"v2", v2},         {"v3", v3}};

}  // namespace schedules

namespace detail {

/// Takes from the front of `text` what stands before the separator, or all of it.
inline std::string_view take_until(std::string_view& text, char separator) {
    const std::string_view part = text.substr(0, text.find(separator));
    text.remove_prefix(part.size() < text.size() ? part.size() + 1 : text.size());
    return part;
}

}  // namespace detail

/// The schedule of a name (v3, v2, moe, llm, wsd, cosine, constant), or of stretches SHAPE:UNTIL:FACTOR joined by
/// commas, e.g. `constant:0.8:1,linear:1:0.1`. Errors: anything else; names the piece and what was expected.
inline stretches stretches_of(std::string_view text) {
    for (const auto& [word, shape] : schedules::names)
        if (word == text) return shape;
    static constexpr std::string_view curves[] = {"constant", "linear", "cosine", "one_minus_sqrt"};
    stretches shape;
    for (std::string_view rest = text; shape.count == 0 || !rest.empty();) {
        const std::string_view piece = detail::take_until(rest, ',');
        std::string_view fields = piece;
        const std::string_view word = detail::take_until(fields, ':');
        int kind = 0;
        while (kind < 4 && curves[kind] != word) ++kind;
        double numbers[2] = {};
        bool good = kind < 4;
        for (double& number : numbers) {
            const std::string_view field = detail::take_until(fields, ':');
            const auto [end, problem] = std::from_chars(field.data(), field.data() + field.size(), number);
            good = good && problem == std::errc{} && end == field.data() + field.size();
        }
        if (!good || !fields.empty())
            fail(
                "learning rate: found \"", piece, "\" in the schedule \"", text,
                "\", expected v3, v2, moe, llm, wsd, cosine, constant, or SHAPE:UNTIL:FACTOR with a shape of constant, "
                "linear, cosine, one_minus_sqrt");
        shape.push({static_cast<curve>(kind), numbers[0], numbers[1]});
    }
    return shape;
}

}  // namespace fathom::optim
