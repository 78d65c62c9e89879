// A tokenizer made from the very text that a model will learn, so that a small vocabulary is spent on what occurs
// there.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fathom/core/error.hpp"
#include "fathom/core/json.hpp"
#include "fathom/data/detail/byte_alphabet.hpp"
#include "fathom/data/detail/splitter.hpp"
#include "fathom/data/detail/utf8.hpp"

namespace fathom {

/// Trains a byte-level BPE tokenizer with DeepSeek's pre-tokenizer. The same texts give the same file, in any order.
class tokenizer_trainer {
  public:
    struct options {
        /// Special tokens, the 256 bytes, then merges until this many or until no pair occurs `least_count` times.
        std::int32_t vocab_size = 4096;
        std::int64_t least_count = 2;
        /// They get the first ids.
        std::vector<std::string> special_tokens = {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"};
    };

    /// Errors: a vocabulary that cannot hold all bytes and special tokens, or holds more than 2^20 tokens.
    explicit tokenizer_trainer(options chosen) : options_{std::move(chosen)}, split_{pre_tokenizer()} {
        const std::int64_t least = static_cast<std::int64_t>(options_.special_tokens.size()) + 256;
        if (options_.vocab_size < least || options_.vocab_size > 1 << 20)
            fail("tokenizer: found vocab_size ", options_.vocab_size, ", expected ", least,
                 " (256 bytes and the special tokens) to ", 1 << 20);
    }

    /// Counts the words of a text. Errors: text that is not UTF-8; names the byte.
    void add(std::string_view text) {
        if (const std::size_t bad = detail::find_bad_utf8(text); bad != std::string_view::npos)
            fail("found a byte that is not UTF-8 at offset ", bad, " of the text, expected UTF-8");
        split_(text, match_, [&](std::string_view piece) {
            const auto at = counts_.find(piece);
            if (at != counts_.end()) {
                ++at->second;
            } else {
                counts_.emplace(piece, 1);
            }
        });
    }

    /// Trains on all texts so far; gives the tokenizer.json.
    [[nodiscard]] std::string tokenizer_json() const;

  private:
    struct text_hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
    };
    struct word {
        std::vector<std::int32_t> symbols;
        std::int64_t count;
    };
    struct pair_facts {
        std::int64_t count = 0;
        std::vector<std::uint32_t> words;  // where it occurs, or did
    };
    struct candidate {
        std::int64_t count;
        std::int32_t left, right;
        /// The heap's greatest is the most frequent; among equals the pair of lower ids.
        bool operator<(const candidate& other) const {
            if (count != other.count) return count < other.count;
            return std::pair{left, right} > std::pair{other.left, other.right};
        }
    };
    struct pair_hash {
        std::size_t operator()(std::uint64_t pair) const {
            pair *= 0x9E3779B97F4A7C15u;
            return static_cast<std::size_t>(pair ^ (pair >> 32));
        }
    };
    using pair_map = std::unordered_map<std::uint64_t, pair_facts, pair_hash>;

    static std::uint64_t key(std::int32_t left, std::int32_t right) {
        return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32) | static_cast<std::uint32_t>(right);
    }
    [[nodiscard]] static json::value pre_tokenizer();
    [[nodiscard]] std::vector<word> words(const std::array<std::int32_t, 256>& byte_ids) const;
    static void merge(word& in, std::uint32_t number, candidate pair, std::int32_t into, pair_map& pairs,
                      std::vector<candidate>& raised);

    options options_;
    detail::splitter split_;
    detail::matcher match_;
    std::unordered_map<std::string, std::int64_t, text_hash, std::equal_to<>> counts_;
};

inline json::value tokenizer_trainer::pre_tokenizer() {
    json::array parts;
    for (const std::string_view source : detail::deepseek_patterns)
        parts.push_back(json::object{{"type", "Split"},
                                     {"pattern", json::object{{"Regex", source}}},
                                     {"behavior", "Isolated"},
                                     {"invert", false}});
    parts.push_back(
        json::object{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}});
    return json::object{{"type", "Sequence"}, {"pretokenizers", std::move(parts)}};
}

inline std::vector<tokenizer_trainer::word> tokenizer_trainer::words(
    const std::array<std::int32_t, 256>& byte_ids) const {
    std::vector<word> all;
    all.reserve(counts_.size());
    for (const auto& [piece, count] : counts_) {
        word& made = all.emplace_back(word{{}, count});
        for (const char byte : piece) made.symbols.push_back(byte_ids[static_cast<unsigned char>(byte)]);
    }
    return all;
}

/// Replaces every left-right in a word, and moves the counts of the pairs around it.
inline void tokenizer_trainer::merge(word& in, std::uint32_t number, candidate pair, std::int32_t into, pair_map& pairs,
                                     std::vector<candidate>& raised) {
    const auto lower = [&](std::int32_t left, std::int32_t right) { pairs[key(left, right)].count -= in.count; };
    const auto raise = [&](std::int32_t left, std::int32_t right) {
        pair_facts& facts = pairs[key(left, right)];
        facts.count += in.count;
        if (facts.words.empty() || facts.words.back() != number) facts.words.push_back(number);
        raised.push_back({0, left, right});
    };
    auto& symbols = in.symbols;
    std::size_t kept = 0;
    for (std::size_t at = 0; at < symbols.size(); ++kept) {
        if (at + 1 == symbols.size() || symbols[at] != pair.left || symbols[at + 1] != pair.right) {
            symbols[kept] = symbols[at++];
            continue;
        }
        if (kept > 0) {
            lower(symbols[kept - 1], pair.left);
            raise(symbols[kept - 1], into);
        }
        at += 2;
        if (at < symbols.size()) {
            lower(pair.right, symbols[at]);
            raise(into, symbols[at]);
        }
        symbols[kept] = into;
    }
    symbols.resize(kept);
}

inline std::string tokenizer_trainer::tokenizer_json() const {
    std::vector<std::string> contents = options_.special_tokens;
    std::array<std::int32_t, 256> byte_ids{};
    std::vector<std::size_t> order(256);
    for (std::size_t byte = 0; byte < 256; ++byte) order[byte] = byte;
    std::sort(order.begin(), order.end(),
              [](std::size_t a, std::size_t b) { return detail::byte_alphabet[a] < detail::byte_alphabet[b]; });
    for (const std::size_t byte : order) {
        byte_ids[byte] = static_cast<std::int32_t>(contents.size());
        contents.push_back(detail::spelled(std::string(1, static_cast<char>(static_cast<unsigned char>(byte)))));
    }
    std::unordered_map<std::string, std::int32_t> known;
    for (const std::string& content : contents)
        if (!known.emplace(content, static_cast<std::int32_t>(known.size())).second)
            fail("tokenizer: found the special token \"", content, "\" twice or as the name of a byte");

    std::vector<word> all = words(byte_ids);
    pair_map pairs;
    for (std::uint32_t number = 0; number < all.size(); ++number) {
        const auto& symbols = all[number].symbols;
        for (std::size_t i = 1; i < symbols.size(); ++i) {
            pair_facts& facts = pairs[key(symbols[i - 1], symbols[i])];
            facts.count += all[number].count;
            if (facts.words.empty() || facts.words.back() != number) facts.words.push_back(number);
        }
    }
    std::vector<candidate> heap, raised;
    for (const auto& [pair, facts] : pairs)
        heap.push_back({facts.count, static_cast<std::int32_t>(pair >> 32), static_cast<std::int32_t>(pair)});
    std::make_heap(heap.begin(), heap.end());

    json::array merges;
    while (!heap.empty() && static_cast<std::int32_t>(contents.size()) < options_.vocab_size) {
        std::pop_heap(heap.begin(), heap.end());
        candidate best = heap.back();
        heap.pop_back();
        const auto facts = pairs.find(key(best.left, best.right));
        if (facts == pairs.end()) continue;  // merged already
        if (facts->second.count != best.count) {
            best.count = facts->second.count;
            heap.push_back(best);
            std::push_heap(heap.begin(), heap.end());
            continue;
        }
        if (best.count < std::max<std::int64_t>(options_.least_count, 1)) break;
        const std::string& left = contents[static_cast<std::size_t>(best.left)];
        const std::string& right = contents[static_cast<std::size_t>(best.right)];
        merges.push_back(json::array{left, right});
        // Two ways to spell one token are one token.
        const auto [token, is_new] = known.emplace(left + right, static_cast<std::int32_t>(contents.size()));
        const std::vector<std::uint32_t> where = std::move(facts->second.words);
        pairs.erase(facts);
        raised.clear();
        for (const std::uint32_t number : where) merge(all[number], number, best, token->second, pairs, raised);
        pairs.erase(key(best.left, best.right));
        std::sort(raised.begin(), raised.end());
        raised.erase(
            std::unique(raised.begin(), raised.end(),
                        [](const candidate& a, const candidate& b) { return a.left == b.left && a.right == b.right; }),
            raised.end());
        for (candidate next : raised) {
            const auto found = pairs.find(key(next.left, next.right));
            if (found == pairs.end() || found->second.count <= 0) continue;
            next.count = found->second.count;
            heap.push_back(next);
            std::push_heap(heap.begin(), heap.end());
        }
        if (is_new) contents.push_back(token->first);
    }

    json::array added;
    for (const std::string& content : options_.special_tokens)
        added.push_back(json::object{{"id", added.size()},
                                     {"content", content},
                                     {"single_word", false},
                                     {"lstrip", false},
                                     {"rstrip", false},
                                     {"normalized", false},
                                     {"special", true}});
    json::object vocab;
    for (const std::string& content : contents) vocab.emplace_back(content, vocab.size());
    const auto byte_level = [](bool trim) {
        return json::object{
            {"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", trim}, {"use_regex", true}};
    };
    return json::write(json::object{{"version", "1.0"},
                                    {"truncation", nullptr},
                                    {"padding", nullptr},
                                    {"added_tokens", std::move(added)},
                                    {"normalizer", nullptr},
                                    {"pre_tokenizer", pre_tokenizer()},
                                    {"post_processor", byte_level(false)},
                                    {"decoder", byte_level(true)},
                                    {"model", json::object{{"type", "BPE"},
                                                           {"dropout", nullptr},
                                                           {"unk_token", nullptr},
                                                           {"continuing_subword_prefix", nullptr},
                                                           {"end_of_word_suffix", nullptr},
                                                           {"fuse_unk", false},
                                                           {"byte_fallback", false},
                                                           {"ignore_merges", false},
                                                           {"vocab", std::move(vocab)},
                                                           {"merges", std::move(merges)}}}},
                       2);
}

}  // namespace fathom
