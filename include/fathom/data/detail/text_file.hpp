// What counts as text, and a number that tells texts apart.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "fathom/core/error.hpp"
#include "fathom/core/file.hpp"
#include "fathom/data/detail/utf8.hpp"

namespace fathom::detail {

/// The file's text. Errors: an empty file, a zero byte, bytes that are not UTF-8; names the file and the place.
[[nodiscard]] inline std::string_view checked_text(const mapped_file& file) {
    const std::string_view text = file.text();
    if (text.empty()) fail(file.path(), ": found an empty file, expected text");
    if (const void* zero = std::memchr(text.data(), 0, text.size()))
        fail(file.path(), ": found a zero byte at offset ", static_cast<const char*>(zero) - text.data(),
             ", expected text: the file is binary");
    if (const std::size_t bad = find_bad_utf8(text); bad != std::string_view::npos)
        fail(file.path(), ": found a byte that is not UTF-8 at offset ", bad, ", expected UTF-8 text");
    return text;
}

/// FNV-1a, mixed so that nearby texts are apart.
[[nodiscard]] inline std::uint64_t text_hash(std::string_view text) {
    std::uint64_t hash = 0xCBF29CE484222325u;
    for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001B3u;
    hash = (hash ^ (hash >> 31)) * 0xBF58476D1CE4E5B9u;
    return hash ^ (hash >> 29);
}

}  // namespace fathom::detail
