// UTF-8 by hand: patterns run on unchecked text, so what reaches them is checked first, and decoded bytes are repaired.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace fathom::detail {

/// What stands at one place of a text: the bytes it takes, and whether they are a well-formed code point. A fault takes
/// the longest start of a well-formed code point, at least one byte (Unicode's "maximal subpart").
struct utf8_step {
    std::size_t bytes;
    bool good;
};

[[nodiscard]] inline utf8_step utf8_at(std::string_view text, std::size_t at) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char lead = byte(at);
    if (lead < 0x80) return {1, true};
    if (lead < 0xC2 || lead > 0xF4) return {1, false};
    const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;   // overlong forms
    const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;  // surrogates, past U+10FFFF
    for (std::size_t i = 1; i < length; ++i) {
        if (at + i == text.size()) return {i, false};
        const unsigned char next = byte(at + i);
        if (next < (i == 1 ? low : 0x80) || next > (i == 1 ? high : 0xBF)) return {i, false};
    }
    return {length, true};
}

/// The place of the first byte that is not UTF-8, or npos.
[[nodiscard]] inline std::size_t find_bad_utf8(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
        std::uint64_t eight;
        if (text.size() - at >= sizeof eight) {
            std::memcpy(&eight, text.data() + at, sizeof eight);
            if ((eight & 0x8080808080808080u) == 0) {
                at += sizeof eight;
                continue;
            }
        }
        const utf8_step step = utf8_at(text, at);
        if (!step.good) return at;
        at += step.bytes;
    }
    return std::string_view::npos;
}

/// The code point at `at` of well-formed text; `at` moves past it.
[[nodiscard]] inline char32_t next_code_point(std::string_view text, std::size_t& at) {
    const auto lead = static_cast<unsigned char>(text[at++]);
    if (lead < 0x80) return lead;
    const int more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    char32_t point = lead & (0x3Fu >> more);
    for (int i = 0; i < more; ++i) point = (point << 6) | (static_cast<unsigned char>(text[at++]) & 0x3Fu);
    return point;
}

/// Appends the bytes of a code point.
inline void append_code_point(std::string& text, char32_t point) {
    const auto put = [&](char32_t bits) { text += static_cast<char>(bits); };
    if (point < 0x80) return put(point);
    if (point < 0x800) {
        put(0xC0 | (point >> 6));
    } else {
        if (point < 0x10000) {
            put(0xE0 | (point >> 12));
        } else {
            put(0xF0 | (point >> 18));
            put(0x80 | ((point >> 12) & 0x3F));
        }
        put(0x80 | ((point >> 6) & 0x3F));
    }
    put(0x80 | (point & 0x3F));
}

/// The text with every fault replaced by U+FFFD.
[[nodiscard]] inline std::string repaired_utf8(std::string_view text) {
    std::string good;
    good.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
        const utf8_step step = utf8_at(text, at);
        if (step.good) {
            good += text.substr(at, step.bytes);
        } else {
            good += "\xEF\xBF\xBD";
        }
        at += step.bytes;
    }
    return good;
}

}  // namespace fathom::detail
