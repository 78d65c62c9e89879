// Byte-level vocabularies spell each byte as one printable code point; this is that spelling, both ways.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "fathom/data/detail/utf8.hpp"

namespace fathom::detail {

/// The code point that stands for each byte: itself where it is printable Latin-1, else U+0100 onwards in byte order.
inline constexpr std::array<char32_t, 256> byte_alphabet = [] {
    std::array<char32_t, 256> points{};
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
        const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
        points[byte] = printable ? byte : next++;
    }
    return points;
}();

/// The byte that each code point below 324 stands for, -1 for none.
inline constexpr std::array<std::int16_t, 324> alphabet_bytes = [] {
    std::array<std::int16_t, 324> bytes{};
    for (auto& byte : bytes) byte = -1;
    for (std::size_t byte = 0; byte < 256; ++byte) bytes[byte_alphabet[byte]] = static_cast<std::int16_t>(byte);
    return bytes;
}();

/// The bytes spelled in the alphabet.
[[nodiscard]] inline std::string spelled(std::string_view bytes) {
    std::string text;
    for (const char byte : bytes) append_code_point(text, byte_alphabet[static_cast<unsigned char>(byte)]);
    return text;
}

/// Whether `text` is spelled in the alphabet; if so `bytes` becomes what it spells.
[[nodiscard]] inline bool unspell(std::string_view text, std::string& bytes) {
    bytes.clear();
    for (std::size_t at = 0; at < text.size();) {
        const char32_t point = next_code_point(text, at);
        if (point >= alphabet_bytes.size() || alphabet_bytes[point] < 0) return false;
        bytes += static_cast<char>(alphabet_bytes[point]);
    }
    return true;
}

}  // namespace fathom::detail
