#include "fathom/data/tokenizer_trainer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>

#include "fathom/data/tokenizer.hpp"
#include "scratch.hpp"

using namespace fathom;
using tests::error_of;
using tests::in_source;

namespace {

std::vector<std::string> texts() {
    const std::string path = in_source("tests/oracle/tokenizer_small/cases.jsonl");
    std::ifstream file{path};
    std::vector<std::string> all;
    for (std::string line; std::getline(file, line);) {
        const json::value golden = json::parse(line, path);
        if (const json::value* text = golden.find("text")) all.push_back(text->as_string());
    }
    REQUIRE(all.size() == 288);
    return all;
}

std::string trained(const std::vector<std::string>& from, std::int32_t vocab_size) {
    tokenizer_trainer trainer{{.vocab_size = vocab_size}};
    for (const std::string& text : from) trainer.add(text);
    return trainer.tokenizer_json();
}

}  // namespace

TEST_CASE("tokenizer_trainer: the file is the one that the reference trains, byte for byte") {
    const mapped_file golden{in_source("tests/unit/data/trained/tokenizer.json")};
    CHECK(trained(texts(), 600) == golden.text());
}

TEST_CASE("tokenizer_trainer: its file gives the ids that the reference gives with it") {
    const auto all = texts();
    const tokenizer ours = tokenizer::parse(trained(all, 600), "trained");
    const json::value golden = json::parse_file(in_source("tests/unit/data/trained/ids.json"));
    REQUIRE(golden.size() == all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
        std::vector<std::int32_t> ids;
        for (const auto& id : golden.items()[i].items()) ids.push_back(static_cast<std::int32_t>(id.as_int()));
        CHECK(ours.encode(all[i]) == ids);
    }
}

TEST_CASE("tokenizer_trainer: the order of the texts does not matter") {
    auto all = texts();
    const std::string forward = trained(all, 500);
    std::reverse(all.begin(), all.end());
    CHECK(trained(all, 500) == forward);
}

TEST_CASE("tokenizer_trainer: overlapping pairs, equal counts and exhausted text") {
    tokenizer_trainer trainer{{.vocab_size = 4096, .special_tokens = {}}};
    trainer.add("aaaaa aaaaa bc bc");
    const json::value file = json::parse(trainer.tokenizer_json(), "trained");
    std::vector<std::string> merges;
    for (const auto& merge : file.at("model").at("merges").items())
        merges.push_back(merge.items()[0].as_string() + "+" + merge.items()[1].as_string());
    CHECK(merges == std::vector<std::string>{"a+a", "b+c", "Ġ+bc", "aa+a", "aa+aaa"});
}

TEST_CASE("tokenizer_trainer: bad input is refused") {
    CHECK(error_of([] { tokenizer_trainer{{.vocab_size = 258}}; }) ==
          "tokenizer: found vocab_size 258, expected 259 (256 bytes and the special tokens) to 1048576");
    CHECK(error_of([] { tokenizer_trainer{{}}.add("ab\x80"); }).find("offset 2") != std::string::npos);
    CHECK(error_of([] {
              (void)tokenizer_trainer{{.special_tokens = {"a"}}}.tokenizer_json();
          }).find("\"a\" twice or") != std::string::npos);
}
