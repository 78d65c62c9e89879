#include "fathom/data/make_corpus.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "fathom/data/corpus.hpp"
#include "scratch.hpp"

using namespace fathom;
using tests::error_of;
using tests::in_source;
using tests::scratch_folder;

namespace {

const tokenizer& words() {
    static const tokenizer small = tokenizer::open(in_source("tests/oracle/tokenizer_small/tokenizer.json"));
    return small;
}

std::string document_text(const corpus& from, std::int64_t document) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(from[document].tokens));
    from.read(from[document].first, ids);
    CHECK(ids.back() == *words().find("<｜end▁of▁sentence｜>"));
    ids.pop_back();
    return words().decode(ids);
}

std::vector<std::string> many_files(const scratch_folder& folder, int count) {
    std::vector<std::string> paths;
    for (int i = 0; i < count; ++i) {
        std::string text = "File number " + std::to_string(i) + ".\n";
        for (int line = 0; line < 10 + i % 7; ++line) text += "Line " + std::to_string(line * i) + " of it.\n";
        paths.push_back(folder.file(std::to_string(i) + ".txt", text));
    }
    return paths;
}

std::set<std::string> held_out_texts(const std::string& path) {
    const corpus made = corpus::open(path);
    std::set<std::string> texts;
    for (std::int64_t i = 0; i < made.documents(); ++i)
        if (made[i].held_out) texts.insert(document_text(made, i));
    return texts;
}

}  // namespace

TEST_CASE("make_corpus: every file is a document, and about a twentieth is held out") {
    const scratch_folder folder;
    const auto paths = many_files(folder, 200);
    const corpus_facts facts = make_corpus(paths, words(), folder.at("c.bin"), {.workers = 3});
    const corpus made = corpus::open(folder.at("c.bin"));
    REQUIRE(made.documents() == 200);
    std::int64_t held_out = 0, held_out_bytes = 0, held_out_tokens = 0, text_bytes = 0;
    for (std::int64_t i = 0; i < made.documents(); ++i) {
        CHECK(document_text(made, i) == mapped_file{paths[static_cast<std::size_t>(i)]}.text());
        text_bytes += made[i].text_bytes;
        if (!made[i].held_out) continue;
        ++held_out;
        held_out_bytes += made[i].text_bytes;
        held_out_tokens += made[i].tokens;
    }
    CHECK(facts.documents == 200);
    CHECK(facts.tokens == made.tokens());
    CHECK(facts.text_bytes == text_bytes);
    CHECK(facts.held_out_documents == held_out);
    CHECK(facts.held_out_bytes == held_out_bytes);
    CHECK(facts.held_out_tokens == held_out_tokens);
    CHECK(held_out_bytes <= text_bytes / 20);
    CHECK(held_out_bytes > text_bytes / 25);
}

TEST_CASE("make_corpus: what is held out depends on the texts, not on their order or the workers") {
    const scratch_folder folder;
    auto paths = many_files(folder, 60);
    make_corpus(paths, words(), folder.at("a.bin"));
    make_corpus(paths, words(), folder.at("b.bin"), {.workers = 4});
    CHECK(mapped_file{folder.at("a.bin")}.text() == mapped_file{folder.at("b.bin")}.text());
    std::reverse(paths.begin(), paths.end());
    make_corpus(paths, words(), folder.at("c.bin"));
    CHECK(!held_out_texts(folder.at("a.bin")).empty());
    CHECK(held_out_texts(folder.at("a.bin")) == held_out_texts(folder.at("c.bin")));
}

TEST_CASE("make_corpus: equal files stay on one side, and few files still leave one out") {
    const scratch_folder folder;
    const std::string copies[] = {folder.file("a", "one\n"), folder.file("b", "one\n"),
                                  folder.file("c", "a longer one\n")};
    CHECK(make_corpus(copies, words(), folder.at("c.bin")).held_out_documents == 2);
    CHECK(held_out_texts(folder.at("c.bin")) == std::set<std::string>{"one\n"});
    CHECK(make_corpus(std::span{copies}.first(2), words(), folder.at("c.bin")).held_out_documents == 0);
    CHECK(make_corpus(copies, words(), folder.at("c.bin"), {.held_out = 0}).held_out_documents == 0);
}

TEST_CASE("make_corpus: a file alone is cut at a line's end") {
    const scratch_folder folder;
    std::string text;
    for (int line = 0; line < 100; ++line) text += "A line of text.\n";
    const std::string paths[] = {folder.file("a", text)};
    CHECK(make_corpus(paths, words(), folder.at("c.bin")).held_out_bytes == 64);
    const corpus made = corpus::open(folder.at("c.bin"));
    REQUIRE(made.documents() == 2);
    CHECK(document_text(made, 0) + document_text(made, 1) == text);
    const std::string one_line[] = {folder.file("b", "no line's end")};
    CHECK(make_corpus(one_line, words(), folder.at("c.bin")).documents == 1);
}

TEST_CASE("make_corpus: bad files are refused by name, and what was there before stays") {
    const scratch_folder folder;
    const std::string good = folder.file("good.txt", "text\n");
    const std::string out = folder.file("c.bin", "before");
    const auto told = [&](const std::string& path) {
        const std::string text = error_of([&] { make_corpus(std::vector{good, path}, words(), out); });
        REQUIRE(text.starts_with(path + ": "));
        return text.substr(path.size() + 2);
    };
    CHECK(told(folder.at("none.txt")).find("No such file") != std::string::npos);
    CHECK(told(folder.path.string()) == "found a directory, expected a file");
    CHECK(told(folder.file("empty.txt", "")) == "found an empty file, expected text");
    CHECK(told(folder.file("zero", std::string_view{"ab\0c", 4})) ==
          "found a zero byte at offset 2, expected text: the file is binary");
    CHECK(told(folder.file("latin1", "caf\xE9 au lait")) ==
          "found a byte that is not UTF-8 at offset 3, expected UTF-8 text");
    CHECK(error_of([&] { make_corpus({}, words(), out); }).find("found no text file") != std::string::npos);
    CHECK(error_of([&] { make_corpus(std::vector{good}, words(), out, {.held_out = 1}); }).find("share of 1") !=
          std::string::npos);
    CHECK(mapped_file{out}.text() == "before");
}
