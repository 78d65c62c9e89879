// The bytes of a corpus file, known to the writer and the reader alone.
#pragma once

#include <bit>
#include <cstdint>

namespace fathom::detail {

static_assert(std::endian::native == std::endian::little, "fathom: a corpus file is little-endian, and so must be we");

/// A corpus file is this header, then u64 starts[documents + 1] (in tokens), u64 text_bytes[documents],
/// u8 held_out[documents], zeros to a multiple of 8, and the tokens: u16 where the vocabulary allows it, else u32.
struct corpus_header {
    static constexpr char expected_magic[8] = {'f', 'a', 't', 'h', 'o', 'm', '\x1A', '\n'};
    static constexpr std::uint32_t expected_version = 1;

    char magic[8];
    std::uint32_t version;
    std::uint32_t token_bytes;
    std::uint32_t vocab_size;
    std::uint32_t end_of_document;
    std::uint64_t documents;
    std::uint64_t tokens;
    std::uint64_t zeros[3];
};
static_assert(sizeof(corpus_header) == 64);

[[nodiscard]] constexpr std::uint32_t token_width(std::uint32_t vocab_size) { return vocab_size <= 65536 ? 2 : 4; }

/// Zeros after the held-out marks.
[[nodiscard]] constexpr std::uint64_t padding_after(std::uint64_t documents) { return (8 - documents % 8) % 8; }

}  // namespace fathom::detail
