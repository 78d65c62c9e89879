// A corpus with more tokens than 32 bits count, nearly all of it a hole that the file system keeps nothing for.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "fathom/core/error.hpp"
#include "fathom/core/file.hpp"
#include "fathom/data/corpus_writer.hpp"
#include "scratch.hpp"

namespace fathom::tests {

inline constexpr std::int64_t huge_tokens = (std::int64_t{1} << 32) + 3;

/// Document 0 is {5, 6, 2}, document 1 the rest: zeros and at the end 41, 42, 2.
inline std::string huge_corpus(const scratch_folder& folder, bool held_out) {
    corpus_writer writer{100, 2};
    writer.add(std::vector<std::int32_t>{5, 6}, 2, false);
    writer.add(std::vector<std::int32_t>{7}, 1, held_out);
    writer.write(folder.at("huge.bin"));
    constexpr std::size_t tables = 64 + 8 * 3 + 8 * 2 + 8;
    std::string start{mapped_file{folder.at("huge.bin")}.text().substr(0, tables)};
    for (const std::size_t at : {std::size_t{32}, std::size_t{64 + 8 * 2}})
        std::memcpy(start.data() + at, &huge_tokens, sizeof huge_tokens);
    const std::uint16_t first[] = {5, 6, 2}, last[] = {41, 42, 2};
    start.append(reinterpret_cast<const char*>(first), sizeof first);
    const std::string path = folder.file("huge.bin", start);
    const int file = ::open(path.c_str(), O_WRONLY);
    const auto at = static_cast<off_t>(tables) + 2 * (huge_tokens - 3);
    const bool written = ::pwrite(file, last, sizeof last, at) == sizeof last;
    ::close(file);
    if (!written) fail(path, ": the huge corpus cannot be written");
    return path;
}

}  // namespace fathom::tests
