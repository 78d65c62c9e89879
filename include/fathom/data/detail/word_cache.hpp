// Text repeats its words: remembering their tokens saves nearly all merging. Fixed in size, so it never allocates
// twice.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace fathom::detail {

/// The tokens of recent short pieces; a newer one takes the place of an older with the same hash.
class word_cache {
  public:
    static constexpr std::size_t most_bytes = 24, most_ids = 8;

    /// One cache line: a piece, zero-padded, and its ids. count 0 says that the ids are not known yet.
    struct alignas(64) word {
        std::uint64_t key[3];
        std::int32_t ids[most_ids];
        std::uint8_t length, count;

        /// Remembers the ids; false if there are too many.
        bool keep(const std::vector<std::int32_t>& found) {
            if (found.size() > most_ids) return false;
            count = static_cast<std::uint8_t>(found.size());
            std::memcpy(ids, found.data(), found.size() * sizeof found[0]);
            return true;
        }
    };
    static_assert(sizeof(word) == 64);

    /// The entry of the piece, found or made; nullptr for a long one.
    [[nodiscard]] word* find(std::string_view piece) {
        if (piece.size() > most_bytes) return nullptr;
        std::uint64_t key[3] = {};
        std::memcpy(key, piece.data(), piece.size());
        std::uint64_t hash = key[0] * 0x9E3779B97F4A7C15u + key[1] * 0xC2B2AE3D27D4EB4Fu + key[2] * 0x165667B19E3779F9u;
        hash = (hash ^ (hash >> 29)) * 0xBF58476D1CE4E5B9u;
        word& at = words_[static_cast<std::size_t>(hash >> (64 - bits))];
        if (at.length != piece.size() || at.key[0] != key[0] || at.key[1] != key[1] || at.key[2] != key[2]) {
            std::memcpy(at.key, key, sizeof key);
            at.length = static_cast<std::uint8_t>(piece.size());
            at.count = 0;
        }
        return &at;
    }

  private:
    static constexpr int bits = 15;
    std::vector<word> words_ = std::vector<word>(std::size_t{1} << bits);
};

}  // namespace fathom::detail
