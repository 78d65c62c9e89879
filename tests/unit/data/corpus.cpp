#include "fathom/data/corpus.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "fathom/data/corpus_writer.hpp"
#include "huge_corpus.hpp"
#include "scratch.hpp"

using namespace fathom;
using tests::error_of;
using tests::scratch_folder;

namespace {

std::string bytes_of(const std::string& path) { return std::string{mapped_file{path}.text()}; }

std::string written(const scratch_folder& folder, std::int32_t vocab_size) {
    corpus_writer writer{vocab_size, 2};
    writer.add(std::vector<std::int32_t>{5, 6, vocab_size - 1}, 30, false);
    writer.add(std::vector<std::int32_t>{}, 0, true);
    writer.add(std::vector<std::int32_t>{7}, 4, true);
    writer.write(folder.at("c.bin"));
    return folder.at("c.bin");
}

}  // namespace

TEST_CASE("corpus: what was written is read, in both widths") {
    const scratch_folder folder;
    for (const std::int32_t vocab_size : {65536, 65537}) {
        const corpus read = corpus::open(written(folder, vocab_size));
        CHECK(read.vocab_size() == vocab_size);
        CHECK(read.end_of_document() == 2);
        REQUIRE(read.documents() == 3);
        CHECK(read.tokens() == 7);
        CHECK(read[0].first == 0);
        CHECK(read[0].tokens == 4);
        CHECK(read[0].text_bytes == 30);
        CHECK(!read[0].held_out);
        CHECK(read[1].tokens == 1);
        CHECK(read[2].first == 5);
        CHECK(read[2].held_out);
        std::vector<std::int32_t> tokens(7);
        read.read(0, tokens);
        CHECK(tokens == std::vector<std::int32_t>{5, 6, vocab_size - 1, 2, 2, 7, 2});
        const auto size = bytes_of(read.path()).size();
        CHECK(size == 64 + 8 * 4 + 8 * 3 + 8 + 7 * (vocab_size == 65536 ? 2 : 4));
        CHECK(error_of([&] { read.read(5, tokens); }).find("found tokens 5 to 12 asked for, expected within 7") !=
              std::string::npos);
        CHECK(error_of([&] { (void)read[3]; }).find("found document 3, expected 0 to 2") != std::string::npos);
    }
}

TEST_CASE("corpus: an id outside the vocabulary is named with file, place and value") {
    const scratch_folder folder;
    std::string bytes = bytes_of(written(folder, 100));
    bytes[128 + 2 * 5] = 100;
    const corpus read = corpus::open(folder.file("bad.bin", bytes));
    std::vector<std::int32_t> tokens(7);
    CHECK(error_of([&] { read.read(0, tokens); }) ==
          read.path() + ": found token id 100 at token 5 (byte 138 of the file), expected below 100");
}

TEST_CASE("corpus: files that are missing, empty, cut short or damaged are refused") {
    const scratch_folder folder;
    const std::string good = bytes_of(written(folder, 100));
    const auto told = [&](const std::string& bytes) {
        const std::string path = folder.file("bad.bin", bytes);
        const std::string text = error_of([&] { (void)corpus::open(path); });
        if (text == "no error") return text;
        REQUIRE(text.starts_with(path + ": "));
        return text.substr(path.size() + 2);
    };
    const auto changed = [&](std::size_t at, std::uint64_t to, std::size_t width) {
        std::string bytes = good;
        std::memcpy(bytes.data() + at, &to, width);
        return told(bytes);
    };
    CHECK(told(good) == "no error");
    CHECK(error_of([&] { (void)corpus::open(folder.at("none.bin")); }).find("No such file") != std::string::npos);
    CHECK(told("") == "found an empty file, expected a corpus");
    CHECK(told("short") == "found 5 bytes, expected a corpus, which has a header of 64");
    CHECK(told(std::string(200, 'x')) == "found another kind of file, expected a corpus");
    for (std::size_t size = 64; size < good.size(); ++size)
        CHECK(told(good.substr(0, size)).find("cut short") != std::string::npos);
    CHECK(told(good + "x") == "found 143 bytes, expected 142");
    CHECK(changed(8, 2, 4) == "found version 2 of the corpus format, expected 1");
    CHECK(changed(12, 4, 4) == "found 4 bytes a token, expected 2 for a vocabulary of 100");
    CHECK(changed(16, 0, 4) == "found vocab_size 0, expected 1 to 2147483647");
    CHECK(changed(20, 100, 4) == "found end_of_document 100, expected below 100");
    for (const std::uint64_t hostile : {~std::uint64_t{0}, std::uint64_t{1} << 63, std::uint64_t{1} << 60}) {
        CHECK(changed(24, hostile, 8).find("cut short or damaged") != std::string::npos);
        CHECK(changed(32, hostile, 8).find("cut short or damaged") != std::string::npos);
        CHECK(changed(72, hostile, 8).find("as the start of document 1, expected 1 or more") != std::string::npos);
    }
    CHECK(changed(64, 1, 8) == "found token 1 as the start of document 0, expected 0 or more");
    CHECK(changed(80, 4, 8) == "found token 4 as the start of document 2, expected 5 or more");
    CHECK(changed(88, 6, 8) == "found token 6 as the start of document 3, expected 7");
}

TEST_CASE("corpus_writer: bad documents are refused") {
    const scratch_folder folder;
    CHECK(error_of([] { corpus_writer{100, 100}; }) == "corpus: found end_of_document 100, expected 0 to 99");
    CHECK(error_of([] { corpus_writer{0, 0}; }) == "corpus: found vocab_size 0, expected at least 1");
    corpus_writer writer{100, 0};
    CHECK(error_of([&] {
              writer.add(std::vector<std::int32_t>{1, -1}, 1, false);
          }) == "corpus: document 0 has id -1 at token 1, expected 0 to 99");
    CHECK(error_of([&] { writer.write(folder.at("c.bin")); }).find("found no document to write") != std::string::npos);
}

TEST_CASE("corpus: tokens past 2^32 are read") {
    const scratch_folder folder;
    const corpus read = corpus::open(tests::huge_corpus(folder, false));
    CHECK(read.tokens() == tests::huge_tokens);
    CHECK(read[1].first == 3);
    CHECK(read[1].tokens == tests::huge_tokens - 3);
    std::vector<std::int32_t> end(4);
    read.read(read.tokens() - 4, end);
    CHECK(end == std::vector<std::int32_t>{0, 41, 42, 2});
}
