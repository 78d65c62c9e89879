// Token patterns are written for Oniguruma and its Unicode tables; here they are rewritten for PCRE2 with the classes
// as explicit ranges, compiled, and matched without allocation.
#pragma once

#ifndef PCRE2_CODE_UNIT_WIDTH
#define PCRE2_CODE_UNIT_WIDTH 8
#endif
#include <pcre2.h>

#include <cstddef>
#include <cstdio>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "fathom/core/error.hpp"
#include "fathom/data/detail/unicode_classes.hpp"
#include "fathom/data/detail/utf8.hpp"

namespace fathom::detail {

/// The ranges of `\p{name}`, or of `\s` for the name "s"; empty for a class that is not known.
[[nodiscard]] inline std::span<const code_range> class_ranges(std::string_view name) {
    if (name == "L") return letters;
    if (name == "M") return marks;
    if (name == "N") return numbers;
    if (name == "P") return punctuation;
    if (name == "S") return symbols;
    if (name == "s") return spaces;
    return {};
}

/// Ranges as the inside of a PCRE2 bracket; `outside` takes all other code points.
[[nodiscard]] inline std::string bracket_text(std::span<const code_range> ranges, bool outside) {
    std::string text;
    const auto put = [&](char32_t first, char32_t last) {
        if (first > last) return;
        char range[32];
        const int length = std::snprintf(range, sizeof range, "\\x{%x}-\\x{%x}", static_cast<unsigned>(first),
                                         static_cast<unsigned>(last));
        text.append(range, static_cast<std::size_t>(length));
    };
    if (!outside) {
        for (const code_range& range : ranges) put(range.first, range.last);
        return text;
    }
    const auto put_around_surrogates = [&](char32_t first, char32_t last) {
        put(first, last < 0xD800 ? last : 0xD7FF);
        put(first > 0xDFFF ? first : 0xE000, last);
    };
    char32_t next = 0;
    for (const code_range& range : ranges) {
        if (range.first > next) put_around_surrogates(next, range.first - 1);
        next = range.last + 1;
    }
    put_around_surrogates(next, 0x10FFFF);
    return text;
}

/// The pattern in PCRE2's words. Fails, naming `where`, on what the two engines read differently.
[[nodiscard]] inline std::string rewritten_pattern(std::string_view pattern, std::string_view where) {
    const auto refuse = [&](std::size_t at, std::string_view found) {
        fail(where, ": byte ", at, " of the pattern ", pattern, " is ", found,
             "; expected only literals, groups, repeats, brackets without nesting, and \\p{} of L, M, N, P, S or \\s");
    };
    std::string text;
    bool in_bracket = false;
    for (std::size_t at = 0; at < pattern.size(); ++at) {
        const char c = pattern[at];
        const char next = at + 1 < pattern.size() ? pattern[at + 1] : '\0';
        if (c == '\\') {
            std::string_view name;
            bool outside = next == 'P' || next == 'S';
            std::size_t length = 2;
            if (next == 'p' || next == 'P') {
                const std::size_t close = pattern.find('}', at);
                if (at + 2 >= pattern.size() || pattern[at + 2] != '{' || close == std::string_view::npos)
                    refuse(at, "a class without {name}");
                name = pattern.substr(at + 3, close - at - 3);
                if (name.starts_with('^')) {
                    outside = !outside;
                    name.remove_prefix(1);
                }
                length = close + 1 - at;
            } else if (next == 's' || next == 'S') {
                name = "s";
            }
            if (!name.empty()) {
                const auto ranges = class_ranges(name);
                if (ranges.empty()) refuse(at, "a class that is not known");
                const std::string inside = bracket_text(ranges, in_bracket && outside);
                text += in_bracket ? inside : (outside ? "[^" : "[") + inside + "]";
                at += length - 1;
                continue;
            }
            const bool letter_or_digit =
                (next >= '0' && next <= '9') || (next >= 'A' && next <= 'Z') || (next >= 'a' && next <= 'z');
            if (next == '\0' || (letter_or_digit && std::string_view{"nrtfxAz"}.find(next) == std::string_view::npos))
                refuse(at, "an escape that is not known");
            text += c;
            text += next;
            ++at;
            continue;
        }
        if (in_bracket) {
            if (c == '[') refuse(at, "a bracket inside a bracket");
            if (c == '&' && next == '&') refuse(at, "an intersection of brackets");
            if (c == ']') in_bracket = false;
        } else if (c == '[') {
            in_bracket = true;
            if (next == '^') {
                text += c;
                ++at;
                text += next;
                continue;
            }
        }
        text += c;
    }
    return text;
}

/// What one thread needs to match patterns, kept from match to match.
class matcher {
  public:
    matcher()
        : stack_{pcre2_jit_stack_create(32 * 1024, 8 * 1024 * 1024, nullptr)},
          context_{pcre2_match_context_create(nullptr)},
          found_{pcre2_match_data_create(1, nullptr)} {
        if (!stack_ || !context_ || !found_) throw std::bad_alloc{};
        pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
    }

  private:
    friend class pattern;
    template <auto Free> struct freed {
        void operator()(auto* held) const { Free(held); }
    };
    std::unique_ptr<pcre2_jit_stack, freed<pcre2_jit_stack_free>> stack_;
    std::unique_ptr<pcre2_match_context, freed<pcre2_match_context_free>> context_;
    std::unique_ptr<pcre2_match_data, freed<pcre2_match_data_free>> found_;
};

/// A compiled token pattern. Errors of the pattern name `where` it was written.
class pattern {
  public:
    pattern(std::string_view source, std::string where) : where_{std::move(where)} {
        const std::string text = rewritten_pattern(source, where_);
        int code = 0;
        std::size_t at = 0;
        code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), PCRE2_UTF | PCRE2_MULTILINE,
                                  &code, &at, nullptr));
        if (!code_) fail(where_, ": the pattern ", source, " cannot be compiled: ", message(code));
        fast_ = pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE) == 0;
    }

    /// The first match in text[from, end) that is not empty; false if there is none. The text is well-formed UTF-8.
    bool find(std::string_view text, std::size_t from, matcher& with, std::size_t& first, std::size_t& last) const {
        const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
        for (;;) {
            int code = PCRE2_ERROR_JIT_STACKLIMIT;
            if (fast_)
                code =
                    pcre2_jit_match(code_.get(), subject, text.size(), from, 0, with.found_.get(), with.context_.get());
            if (code == PCRE2_ERROR_JIT_STACKLIMIT)
                code = pcre2_match(code_.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                                   with.found_.get(), nullptr);
            if (code == PCRE2_ERROR_NOMATCH) return false;
            if (code < 0) fail(where_, ": the pattern cannot be matched: ", message(code));
            const std::size_t* range = pcre2_get_ovector_pointer(with.found_.get());
            first = range[0];
            last = range[1];
            if (last > first) return true;
            if (last >= text.size()) return false;
            from = last;
            (void)next_code_point(text, from);
        }
    }

  private:
    [[nodiscard]] static std::string message(int code) {
        unsigned char text[256];
        pcre2_get_error_message(code, text, sizeof text);
        return reinterpret_cast<const char*>(text);
    }
    struct freed {
        void operator()(pcre2_code* held) const { pcre2_code_free(held); }
    };
    std::string where_;
    std::unique_ptr<pcre2_code, freed> code_;
    bool fast_ = false;
};

}  // namespace fathom::detail
