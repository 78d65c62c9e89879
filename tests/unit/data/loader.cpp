#include "fathom/data/loader.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "fathom/data/corpus_writer.hpp"
#include "huge_corpus.hpp"
#include "scratch.hpp"

using namespace fathom;
using tests::error_of;
using tests::scratch_folder;

namespace {

/// Document d holds 100 d + 10, 100 d + 11, ...; token 0 ends documents.
corpus numbered(const scratch_folder& folder, const std::vector<int>& sizes, const std::set<int>& held_out = {}) {
    corpus_writer writer{100'000, 0};
    for (int d = 0; d < static_cast<int>(sizes.size()); ++d) {
        std::vector<std::int32_t> ids;
        for (int i = 0; i < sizes[static_cast<std::size_t>(d)]; ++i) ids.push_back(100 * d + 10 + i);
        writer.add(ids, 10 * ids.size(), held_out.contains(d));
    }
    writer.write(folder.at("c.bin"));
    return corpus::open(folder.at("c.bin"));
}

const std::vector<int> sizes{5, 9, 1, 30, 4, 17, 2, 8, 12, 3};

bool operator_equal(const batch& a, const batch& b) {
    return a.sequences == b.sequences && a.length == b.length && a.tokens == b.tokens && a.labels == b.labels &&
           a.positions == b.positions && a.starts == b.starts && a.targets == b.targets;
}

void append(batch& to, const batch& part) {
    const auto join = [](auto& a, const auto& b) { a.insert(a.end(), b.begin(), b.end()); };
    join(to.tokens, part.tokens);
    join(to.labels, part.labels);
    join(to.positions, part.positions);
    join(to.starts, part.starts);
    to.sequences += part.sequences;
    to.length = part.length;
    to.targets += part.targets;
}

}  // namespace

TEST_CASE("loader: documents keep together, with labels, positions and starts") {
    const scratch_folder folder;
    const corpus from = numbered(folder, sizes);
    loader data{from, {.length = 8, .seed = 1}};
    CHECK(data.sequences_per_epoch() == 101 / 8);
    const batch all = data.next(data.sequences_per_epoch());
    std::int64_t targets = 0;
    for (std::size_t i = 0; i < all.tokens.size(); ++i) {
        const auto in_sequence = static_cast<std::int32_t>(i % 8);
        CHECK(all.positions[i] == in_sequence - all.starts[i]);
        if (in_sequence > 0 && all.tokens[i - 1] != 0) {
            CHECK(all.starts[i] == all.starts[i - 1]);
            CHECK((all.tokens[i] == all.tokens[i - 1] + 1 || all.tokens[i] == 0));
        } else {
            CHECK(all.starts[i] == in_sequence);
        }
        if (all.tokens[i] == 0) {
            CHECK(all.labels[i] == -100);
        } else if (in_sequence < 7) {
            CHECK(all.labels[i] == all.tokens[i + 1]);
        }
        targets += all.labels[i] != -100;
    }
    CHECK(all.targets == targets);
}

TEST_CASE("loader: the sequences of a batch are of different documents") {
    const scratch_folder folder;
    const corpus from = numbered(folder, std::vector<int>(10, 79));  // ten sequences each
    loader data{from, {.length = 8, .seed = 1}};
    REQUIRE(data.sequences_per_epoch() == 100);
    std::set<std::vector<std::int32_t>> seen;
    for (int step = 0; step < 20; ++step) {
        const batch five = data.next(5);
        std::set<std::int32_t> documents;
        for (std::size_t i = 0; i < five.tokens.size(); i += 8) {
            documents.insert(five.tokens[i] / 100);
            seen.insert({five.tokens.begin() + static_cast<std::ptrdiff_t>(i),
                         five.tokens.begin() + static_cast<std::ptrdiff_t>(i + 8)});
        }
        CHECK(documents.size() == 5);
    }
    CHECK(seen.size() == 100);
}

TEST_CASE("loader: an epoch has every token once, and the next one another order") {
    const scratch_folder folder;
    const corpus from = numbered(folder, sizes);
    loader data{from, {.length = 1, .seed = 7}};
    const batch first = data.next(101), second = data.next(101);
    std::map<std::int32_t, int> count;
    for (const std::int32_t token : first.tokens) ++count[token];
    CHECK(count[0] == 10);
    CHECK(count.size() == 92);
    CHECK(std::is_permutation(first.tokens.begin(), first.tokens.end(), second.tokens.begin()));
    CHECK(first.tokens != second.tokens);
    CHECK(loader{from, {.length = 1, .seed = 8}}.next(101).tokens != first.tokens);
    CHECK(data.where() == loader::state{2, 0});
}

TEST_CASE("loader: a run that resumes reads what it would have read") {
    const scratch_folder folder;
    const corpus from = numbered(folder, sizes);
    loader data{from, {.length = 8, .seed = 3}};
    for (int step = 0; step < 9; ++step) {
        loader resumed{from, {.length = 8, .seed = 3}};
        resumed.go_to(data.where());
        const std::int64_t targets = data.targets_ahead(5);
        const batch expected = data.next(5);
        CHECK(expected.targets == targets);
        CHECK(operator_equal(resumed.next(5), expected));
        CHECK(resumed.where() == data.where());
    }
    CHECK(data.where() == loader::state{3, 9});
}

TEST_CASE("loader: ranks that share a step read what one rank reads") {
    const scratch_folder folder;
    const corpus from = numbered(folder, sizes);
    loader one{from, {.length = 4, .seed = 5}};
    for (const std::int64_t ranks : {2, 3, 6}) {
        loader shared{from, {.length = 4, .seed = 5}};
        shared.go_to(one.where());
        batch joined;
        for (std::int64_t rank = 0; rank < ranks; ++rank) append(joined, shared.peek(rank * 12 / ranks, 12 / ranks));
        shared.advance(12);
        CHECK(operator_equal(joined, one.next(12)));
        CHECK(shared.where() == one.where());
    }
}

TEST_CASE("loader: held-out documents come in order, never in training, and are padded") {
    const scratch_folder folder;
    const corpus from = numbered(folder, sizes, {1, 4, 8});
    loader data{from, {.length = 8, .seed = 1}};
    CHECK(data.held_out_bytes() == 250);
    REQUIRE(data.held_out_sequences() == 4);
    const batch all = data.held_out(0, 4);
    std::vector<std::int32_t> expected;
    for (const int d : {1, 4, 8}) {
        for (int i = 0; i < sizes[static_cast<std::size_t>(d)]; ++i) expected.push_back(100 * d + 10 + i);
        expected.push_back(0);
    }
    CHECK(all.targets == static_cast<std::int64_t>(expected.size()) - 3);
    expected.resize(32, 0);
    CHECK(all.tokens == expected);
    for (std::size_t i = 28; i < 32; ++i) {
        CHECK(all.labels[i] == -100);
        CHECK(all.starts[i] == 4);
    }
    batch joined;
    append(joined, data.held_out(0, 1));
    append(joined, data.held_out(1, 3));
    CHECK(operator_equal(joined, all));
    for (const std::int32_t token : data.next(50).tokens)
        for (const int d : {1, 4, 8}) CHECK((token < 100 * d + 10 || token >= 100 * d + 100));
}

TEST_CASE("loader: across documents a sequence is one stretch") {
    const scratch_folder folder;
    const corpus from = numbered(folder, sizes);
    loader data{from, {.length = 101, .seed = 1, .across_documents = true}};
    CHECK(data.targets_ahead(2) == 200);
    const batch all = data.next(1);
    CHECK(all.targets == 100);
    for (std::size_t i = 0; i < 101; ++i) {
        CHECK(all.starts[i] == 0);
        CHECK(all.positions[i] == static_cast<std::int32_t>(i));
        CHECK(all.labels[i] == (i < 100 ? all.tokens[i + 1] : -100));
    }
}

TEST_CASE("loader: bad places and lengths are refused") {
    const scratch_folder folder;
    const corpus from = numbered(folder, sizes, {3});
    CHECK(error_of([&] { loader{from, {}}; }).find("found a sequence length of 0") != std::string::npos);
    CHECK(error_of([&] {
              loader{from, {.length = 71}};
          }).find("found 70 tokens for training, expected at least") != std::string::npos);
    loader data{from, {.length = 7}};
    CHECK(error_of([&] { data.go_to({0, 10}); }).find("expected a sequence from 0 to 9") != std::string::npos);
    CHECK(error_of([&] { data.go_to({-1, 0}); }).find("found epoch -1") != std::string::npos);
    CHECK(error_of([&] { (void)data.held_out(4, 2); }).find("expected within 5") != std::string::npos);
}

TEST_CASE("loader: places past 2^32 tokens and as many sequences") {
    const scratch_folder folder;
    const corpus from = corpus::open(tests::huge_corpus(folder, false));
    for (const std::int64_t length : {1, 1024}) {
        loader data{from, {.length = length, .seed = 1}};
        CHECK(data.sequences_per_epoch() == tests::huge_tokens / length);
        data.go_to({0, data.sequences_per_epoch() - 1});
        CHECK(data.targets_ahead(1) == data.peek(0, 1).targets);
        data.advance(data.sequences_per_epoch());
        CHECK(data.where() == loader::state{1, data.sequences_per_epoch() - 1});
    }
    const corpus apart = corpus::open(tests::huge_corpus(folder, true));
    loader data{apart, {.length = 3}};
    const batch end = data.held_out(data.held_out_sequences() - 2, 2);
    CHECK(end.tokens == std::vector<std::int32_t>{0, 41, 42, 2, 2, 2});
    CHECK(end.labels == std::vector<std::int32_t>{41, 42, 2, -100, -100, -100});
}
