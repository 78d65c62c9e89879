// One exception type for bad input, so that a caller can tell it from a fault of the machine and print it as it is.
#pragma once

#include <concepts>
#include <cstdio>
#include <initializer_list>
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

/// A part of a sentence: text, a letter or a number. Sentences are put together by one function, so that each kind of
/// sentence costs the compiler no more than a list.
class text_part {
  public:
    text_part(std::string_view text) : text_(text) {}                       // NOLINT(google-explicit-constructor)
    text_part(const std::string& text) : text_(text) {}                     // NOLINT(google-explicit-constructor)
    text_part(const char* text) : text_(text) {}                            // NOLINT(google-explicit-constructor)
    text_part(char letter) : kind_(kind::letter), whole_(letter) {}         // NOLINT(google-explicit-constructor)
    text_part(std::floating_point auto x) : kind_(kind::real), real_(x) {}  // NOLINT(google-explicit-constructor)
    text_part(std::integral auto n)                                         // NOLINT(google-explicit-constructor)
        : kind_(n < decltype(n){} ? kind::whole : kind::natural), whole_(static_cast<unsigned long long>(n)) {}

    void append_to(std::string& text) const {
        char digits[32];
        const auto put = [&](int length) { text.append(digits, static_cast<std::size_t>(length)); };
        switch (kind_) {
            case kind::text:
                text += text_;
                break;
            case kind::letter:
                text += static_cast<char>(whole_);
                break;
            case kind::whole:
                put(std::snprintf(digits, sizeof digits, "%lld", static_cast<long long>(whole_)));
                break;
            case kind::natural:
                put(std::snprintf(digits, sizeof digits, "%llu", whole_));
                break;
            case kind::real:
                put(std::snprintf(digits, sizeof digits, "%.6g", real_));
        }
    }

  private:
    enum class kind : unsigned char { text, letter, whole, natural, real };
    kind kind_ = kind::text;
    std::string_view text_;
    unsigned long long whole_ = 0;
    double real_ = 0;
};

[[gnu::cold, gnu::noinline]] inline std::string joined(std::initializer_list<text_part> parts) {
    std::string text;
    for (const text_part& part : parts) part.append_to(text);
    return text;
}
[[noreturn, gnu::cold, gnu::noinline]] inline void fail_with(std::initializer_list<text_part> parts) {
    throw error{joined(parts)};
}

}  // namespace detail

/// The parts (text and numbers) written one after the other.
template <class... Parts> [[nodiscard]] std::string text_of(const Parts&... parts) {
    return detail::joined({detail::text_part{parts}...});
}

/// Throws `error` with the text of the parts.
template <class... Parts> [[noreturn, gnu::cold, gnu::noinline]] void fail(const Parts&... parts) {
    detail::fail_with({detail::text_part{parts}...});
}

}  // namespace fathom
