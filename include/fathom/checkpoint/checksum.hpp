// XXH64, the checksum of saved files: 64 bits at memory speed in a page of code, and a public definition that other
// programs can verify (`xxhsum -H64`).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace fathom {

/// XXH64 of the bytes with seed 0.
[[nodiscard]] inline std::uint64_t checksum(std::span<const std::byte> bytes) {
    constexpr std::uint64_t p1 = 0x9E3779B185EBCA87, p2 = 0xC2B2AE3D27D4EB4F, p3 = 0x165667B19E3779F9,
                            p4 = 0x85EBCA77C2B2AE63, p5 = 0x27D4EB2F165667C5;
    const auto take = [&bytes]<class T>(T word) -> std::uint64_t {
        std::memcpy(&word, bytes.data(), sizeof word);
        bytes = bytes.subspan(sizeof word);
        return word;
    };
    const auto round = [](std::uint64_t lane, std::uint64_t word) { return std::rotl(lane + word * p2, 31) * p1; };

    std::uint64_t hash = p5;
    const std::uint64_t length = bytes.size();
    if (length >= 32) {
        std::uint64_t lanes[4] = {p1 + p2, p2, 0, 0 - p1};
        while (bytes.size() >= 32)
            for (std::uint64_t& lane : lanes) lane = round(lane, take(std::uint64_t{}));
        hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) + std::rotl(lanes[3], 18);
        for (const std::uint64_t lane : lanes) hash = (hash ^ round(0, lane)) * p1 + p4;
    }
    hash += length;
    while (bytes.size() >= 8) hash = std::rotl(hash ^ round(0, take(std::uint64_t{})), 27) * p1 + p4;
    if (bytes.size() >= 4) hash = std::rotl(hash ^ take(std::uint32_t{}) * p1, 23) * p2 + p3;
    while (!bytes.empty()) hash = std::rotl(hash ^ take(std::uint8_t{}) * p5, 11) * p1;
    hash = (hash ^ hash >> 33) * p2;
    hash = (hash ^ hash >> 29) * p3;
    return hash ^ hash >> 32;
}

}  // namespace fathom
