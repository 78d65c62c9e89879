#include "fathom/checkpoint/checksum.hpp"

#include <doctest/doctest.h>

#include <span>
#include <string>
#include <string_view>

namespace {

std::uint64_t of(std::string_view text) { return fathom::checksum(std::as_bytes(std::span{text})); }

}  // namespace

TEST_CASE("checksums are those of xxhsum -H64") {
    CHECK(of("") == 0xEF46DB3751D8E999);
    CHECK(of("a") == 0xD24EC4F1A98C6E5B);
    CHECK(of("abc") == 0x44BC2CF5AD770999);
    CHECK(of("Nobody inspects the spammish repetition") == 0xFBCEA83C8A378BF1);
}

TEST_CASE("every byte counts, at every length") {
    for (std::size_t length = 1; length < 80; ++length) {
        std::string text(length, 'x');
        const auto whole = of(text);
        for (char& c : text) {
            c = 'y';
            CHECK(of(text) != whole);
            c = 'x';
        }
        CHECK(of(text.substr(1)) != whole);
    }
}
