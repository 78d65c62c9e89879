#include "fathom/data/tokenizer.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "fathom/core/file.hpp"
#include "scratch.hpp"

using namespace fathom;
using tests::error_of;
using tests::in_source;

namespace {

std::string small_file() { return in_source("tests/oracle/tokenizer_small/tokenizer.json"); }

std::vector<std::int32_t> ints(const json::value& list) {
    std::vector<std::int32_t> all;
    for (const auto& item : list.items()) all.push_back(static_cast<std::int32_t>(item.as_int()));
    return all;
}

/// Every line of a golden file; gives the number of lines.
int compare(const tokenizer& ours, const std::string& cases) {
    std::ifstream file{cases};
    REQUIRE(file);
    int count = 0;
    for (std::string line; std::getline(file, line); ++count) {
        CAPTURE(line);
        const json::value golden = json::parse(line, cases);
        const auto ids = ints(golden.at("ids"));
        CHECK(ours.decode(ids) == golden.at("decoded").as_string());
        CHECK(ours.decode(ids, true) == golden.at("decoded_skip_special").as_string());
        const json::value* text = golden.find("text");
        if (!text) continue;
        CHECK(ours.encode(text->as_string()) == ids);
        if (const json::value* pieces = golden.find("pieces")) {
            const auto found = ours.pieces(text->as_string());
            REQUIRE(found.size() == pieces->size());
            for (std::size_t i = 0; i < found.size(); ++i)
                CHECK(detail::spelled(found[i]) == pieces->items()[i].as_string());
        }
    }
    return count;
}

std::string all_cases() {
    std::ifstream file{in_source("tests/oracle/tokenizer_small/cases.jsonl")};
    std::string text;
    for (std::string line; std::getline(file, line);)
        if (const json::value golden = json::parse(line, "cases"); golden.find("text"))
            text += golden.at("text").as_string() + "\nnext line ";
    return text;
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
    const auto at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("tokenizer: equals the reference on the small vocabulary") {
    CHECK(compare(tokenizer::open(small_file()), in_source("tests/oracle/tokenizer_small/cases.jsonl")) == 328);
}

TEST_CASE("tokenizer: equals the reference on DeepSeek's released vocabulary") {
    const char* build = std::getenv("FATHOM_BUILD_ROOT");
    const std::string file = (build ? build : in_source("build")) + "/deepseek_tokenizer.json";
    const std::string fetch = "python3 '" + in_source("tests/oracle/tokenizer_real/fetch.py") + "' '" + file + "'";
    if (std::system(fetch.c_str()) != 0) {
        REQUIRE_MESSAGE(!std::getenv("CI"), "the released tokenizer.json could not be fetched");
        MESSAGE("left out: the released tokenizer.json could not be fetched from PyPI");
        return;
    }
    const tokenizer ours = tokenizer::open(file);
    CHECK(ours.vocab_size() == 129280);
    CHECK(compare(ours, in_source("tests/oracle/tokenizer_real/cases.jsonl")) == 328);
}

TEST_CASE("tokenizer: parallel encoding gives the same ids") {
    const tokenizer ours = tokenizer::open(small_file());
    std::string text = all_cases();
    while (text.size() < 1'000'000) text += text;
    const auto ids = ours.encode(text);
    for (const int workers : {2, 3, 8}) CHECK(ours.encode(text, workers) == ids);
}

TEST_CASE("tokenizer: a cut between a line's end and a letter changes no piece") {
    const tokenizer ours = tokenizer::open(small_file());
    const std::string parts[] = {"\n", "\r", " ", "\t", "a", "Z", "1", "!", "'", "é", "\u0301", "一", "\u3000", "😀"};
    constexpr std::size_t kinds = std::size(parts);
    for (std::size_t i = 0; i < kinds * kinds * kinds; ++i) {
        const std::string left = parts[i / kinds / kinds] + parts[i / kinds % kinds] + "\n";
        const std::string right = "b" + parts[i % kinds] + parts[i / kinds % kinds];
        auto apart = ours.encode(left);
        const auto after = ours.encode(right);
        apart.insert(apart.end(), after.begin(), after.end());
        REQUIRE(ours.encode(left + right) == apart);
    }
}

TEST_CASE("tokenizer: a long run without a place to cut is encoded in good time") {
    const tokenizer ours = tokenizer::open(small_file());
    for (const char* unit : {"a", " ", "ab", "1", "!", "\n", "é", "一"}) {
        std::string text;
        while (text.size() < 200'000) text += unit;
        CHECK(ours.decode(ours.encode(text)) == text);
    }
}

TEST_CASE("tokenizer: all byte strings decode, well-formed ones to themselves") {
    const tokenizer ours = tokenizer::open(small_file());
    const auto byte = [&](int value) {
        return *ours.find(detail::spelled(std::string(1, static_cast<char>(static_cast<unsigned char>(value)))));
    };
    for (int value = 0; value < 256; ++value)
        CHECK(ours.decode(std::vector{byte(value)}) ==
              (value < 128 ? std::string(1, static_cast<char>(value)) : "\uFFFD"));
    CHECK(ours.decode(std::vector{byte(0xE4), byte(0xBD), byte('x')}) == "\uFFFDx");
    CHECK(ours.decode(std::vector{byte(0xED), byte(0xA0), byte(0x80)}) == "\uFFFD\uFFFD\uFFFD");
    CHECK(ours.decode(std::vector{byte(0xF4), byte(0x90)}) == "\uFFFD\uFFFD");
}

TEST_CASE("tokenizer: special tokens by name") {
    const tokenizer ours = tokenizer::open(small_file());
    REQUIRE(ours.find("<think>"));
    CHECK(!ours.is_special(*ours.find("<think>")));
    CHECK(ours.is_special(*ours.find("<｜User｜>")));
    CHECK(!ours.find("<nothing>"));
}

TEST_CASE("token patterns: every class matches exactly the reference's code points") {
    const json::value classes = json::parse_file(in_source("tests/oracle/unicode_classes.json"));
    std::string text;
    for (char32_t point = 0; point <= 0x10FFFF; ++point)
        if (point < 0xD800 || point > 0xDFFF) detail::append_code_point(text, point);
    detail::matcher with;
    for (const char* name : {"L", "M", "N", "P", "S", "space"}) {
        std::vector<bool> inside(0x110000);
        for (const auto& range : classes.at(name).items())
            for (std::int64_t point = range.items()[0].as_int(); point <= range.items()[1].as_int(); ++point)
                inside[static_cast<std::size_t>(point)] = true;
        const bool space = std::string_view{name} == "space";
        const std::string in = space ? "\\s" : "\\p{" + std::string{name} + "}";
        const std::string out = space ? "\\S" : "\\P{" + std::string{name} + "}";
        for (const auto& [source, wanted] : {std::pair{in + "+", true},
                                             {"[" + in + "]+", true},
                                             {"[^" + out + "]+", true},
                                             {out + "+", false},
                                             {"[" + out + "]+", false},
                                             {"[^" + in + "]+", false}}) {
            CAPTURE(source);
            const detail::pattern pattern{source, "test"};
            std::size_t at = 0, first = 0, last = 0, wrong = 0;
            while (at < text.size()) {
                if (!pattern.find(text, at, with, first, last)) first = last = text.size();
                while (at < last) {
                    const bool matched = at >= first;
                    wrong += inside[detail::next_code_point(text, at)] != (matched == wanted);
                }
            }
            CHECK(wrong == 0);
        }
    }
}

TEST_CASE("token patterns: what the two engines read differently is refused") {
    for (const char* source :
         {"\\d+", "\\w", "\\p{Lu}", "\\p{L", "\\pL", "[a[b]]", "[[:alpha:]]", "[a&&b]", "a\\", "(", "\\h"}) {
        CAPTURE(source);
        const std::string told = error_of([&] { detail::pattern{source, "here"}; });
        CHECK(told.starts_with("here: "));
    }
}

TEST_CASE("tokenizer: bad input is refused with its place") {
    const mapped_file whole{small_file()};
    const std::string good{whole.text()};
    const auto told = [](const std::string& text) { return error_of([&] { (void)tokenizer::parse(text, "t.json"); }); };
    CHECK(told(good) == "no error");
    CHECK(error_of([] { (void)tokenizer::open("nowhere/t.json"); }).starts_with("nowhere/t.json: "));
    struct change {
        const char *from, *to, *expected;
    };
    for (const change& c : {
             change{"\"normalizer\": null", "\"normalizer\": {\"type\": \"NFC\"}", "found the normalizer NFC"},
             change{"\"type\": \"BPE\"", "\"type\": \"Unigram\"", "found the model Unigram"},
             change{"\"dropout\": null", "\"dropout\": 0.1", "found dropout set to the number 0.1"},
             change{"\"behavior\": \"Isolated\"", "\"behavior\": \"Removed\"", "found the behavior Removed"},
             change{"\"use_regex\": false", "\"use_regex\": 3", "expected true or false"},
             change{"\"single_word\": false", "\"single_word\": true", "found single_word true"},
             change{"\"id\": 1020", "\"id\": 5", "found id 5 a second time"},
             change{"\"id\": 1020", "\"id\": 4000000000", "found the token id 4000000000, expected 0 to"},
             change{"\"id\": 1,", "\"id\": 9,", "expected 1 as in the vocabulary"},
             change{"\"!\":", "\"unheard\":", "for byte 33"},
             change{"\\\\p{N}{1,3}", "\\\\p{Greek}", "a class that is not known"},
         }) {
        const std::string text = told(replaced(good, c.from, c.to));
        CAPTURE(c.to);
        CAPTURE(text);
        CHECK(text.starts_with("t.json:"));
        CHECK(text.find(c.expected) != std::string::npos);
    }
    CHECK(told(good.substr(0, good.size() / 2)).starts_with("t.json:"));
    CHECK(told("{}").starts_with("t.json:"));
    const tokenizer ours = tokenizer::open(small_file());
    CHECK(error_of([&] { (void)ours.encode("abc\xFFxyz"); }) ==
          "found a byte that is not UTF-8 at offset 3 of the text, expected UTF-8");
    CHECK(error_of([&] {
              (void)ours.decode(std::vector{7, 1024});
          }) == "token id 1024 is outside the vocabulary; expected 0 to 1023");
}
