// One exception type for bad input, so that a caller can tell it from a fault of the machine and print it as it is.
#pragma once

#include <concepts>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>

namespace fathom {

/// Bad input or a broken promise, in one sentence that names the file or object, the place, what was found and what was
/// expected.
struct error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

namespace detail {

inline void append(std::string& text, std::string_view part) { text += part; }
inline void append(std::string& text, char part) { text += part; }
inline void append(std::string& text, std::integral auto part) { text += std::to_string(part); }
inline void append(std::string& text, std::floating_point auto part) {
    char digits[32];
    text.append(digits,
                static_cast<std::size_t>(std::snprintf(digits, sizeof digits, "%.6g", static_cast<double>(part))));
}

}  // namespace detail

/// The parts (text and numbers) written one after the other.
template <class... Parts> [[nodiscard]] std::string text_of(const Parts&... parts) {
    std::string text;
    (detail::append(text, parts), ...);
    return text;
}

/// Throws `error` with the text of the parts.
template <class... Parts> [[noreturn, gnu::cold, gnu::noinline]] void fail(const Parts&... parts) {
    throw error{text_of(parts...)};
}

}  // namespace fathom
