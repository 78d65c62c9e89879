// Text becomes token ids and ids become text, exactly as the tokenizer.json of a released model says, so that its
// weights can be used and other people can use ours.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fathom/core/error.hpp"
#include "fathom/core/json.hpp"
#include "fathom/data/detail/added_tokens.hpp"
#include "fathom/data/detail/byte_alphabet.hpp"
#include "fathom/data/detail/merges.hpp"
#include "fathom/data/detail/splitter.hpp"
#include "fathom/data/detail/utf8.hpp"
#include "fathom/data/detail/word_cache.hpp"
#include "fathom/data/detail/workers.hpp"

namespace fathom {

/// A byte-level BPE tokenizer. All members may be called from several threads at once.
class tokenizer {
  public:
    /// Reads a Hugging Face tokenizer.json. Errors: a missing file, bad JSON, or a setting that would change ids and is
    /// not known here; each names the file, the place, what was found and what was expected.
    [[nodiscard]] static tokenizer open(const std::string& path) { return tokenizer{json::parse_file(path)}; }
    /// The same from text; `name` stands for the file in errors.
    [[nodiscard]] static tokenizer parse(std::string_view text, std::string_view name) {
        return tokenizer{json::parse(text, name)};
    }

    /// One more than the highest token id.
    [[nodiscard]] std::int32_t vocab_size() const { return static_cast<std::int32_t>(bytes_.size()); }

    /// The token with this content, as tokenizer.json spells it ("<think>", "Ġthe").
    [[nodiscard]] std::optional<std::int32_t> find(const std::string& content) const {
        const auto at = ids_.find(content);
        return at == ids_.end() ? std::nullopt : std::optional{at->second};
    }

    /// The bytes that a token stands for. Errors: an id outside the vocabulary.
    [[nodiscard]] std::string_view bytes(std::int32_t id) const {
        if (id < 0 || id >= vocab_size())
            fail("token id ", id, " is outside the vocabulary; expected 0 to ", vocab_size() - 1);
        return bytes_[static_cast<std::size_t>(id)];
    }

    /// The ids of the text; added tokens in it are recognised, none is put before or after it.
    /// Errors: text that is not UTF-8; names the byte.
    [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const {
        check(text);
        std::vector<std::int32_t> ids;
        const borrowed worker{*pool_};
        encode_checked(text, *worker.scratch, ids);
        return ids;
    }

    /// The same ids, found by up to `workers` threads.
    [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, int workers) const;

    /// What encode sees: the text cut into added tokens and pieces. The views live as long as the text.
    [[nodiscard]] std::vector<std::string_view> pieces(std::string_view text) const {
        check(text);
        std::vector<std::string_view> all;
        const borrowed worker{*pool_};
        segments(
            text,
            [&](std::string_view plain) { split_(plain, worker.scratch->match, [&](auto p) { all.push_back(p); }); },
            [&](std::string_view content, std::int32_t) { all.push_back(content); });
        return all;
    }

    /// The text of the ids; bytes that are not UTF-8 become U+FFFD. `skip_special` leaves out special tokens.
    /// Errors: an id outside the vocabulary.
    [[nodiscard]] std::string decode(std::span<const std::int32_t> ids, bool skip_special = false) const {
        std::string text;
        for (const std::int32_t id : ids) {
            const std::string_view content = bytes(id);
            if (!skip_special || !special_[static_cast<std::size_t>(id)]) text += content;
        }
        return detail::repaired_utf8(text);
    }

    /// Whether decode leaves this token out when asked to skip special ones. Errors: an id outside the vocabulary.
    [[nodiscard]] bool is_special(std::int32_t id) const {
        (void)bytes(id);
        return special_[static_cast<std::size_t>(id)];
    }

  private:
    struct scratch {
        detail::matcher match;
        detail::merger merge;
        detail::word_cache cache;
    };
    /// Scratch that no thread uses now.
    struct pool {
        std::mutex guard;
        std::vector<std::unique_ptr<scratch>> idle;
    };
    /// Scratch on loan to one call.
    struct borrowed {
        explicit borrowed(pool& lender) : owner{lender} {
            const std::lock_guard lock{owner.guard};
            if (owner.idle.empty()) {
                scratch = std::make_unique<tokenizer::scratch>();
            } else {
                scratch = std::move(owner.idle.back());
                owner.idle.pop_back();
            }
        }
        borrowed(const borrowed&) = delete;
        borrowed& operator=(const borrowed&) = delete;
        ~borrowed() {
            const std::lock_guard lock{owner.guard};
            owner.idle.push_back(std::move(scratch));
        }
        pool& owner;
        std::unique_ptr<tokenizer::scratch> scratch;
    };

    explicit tokenizer(const json::value& file);
    void read_model(const json::value& model);
    void read_added_tokens(const json::value& list);
    [[nodiscard]] static std::int32_t id_of(const json::value& from) {
        constexpr std::int64_t most = 1 << 20;
        const std::int64_t id = from.as_int();
        if (id < 0 || id >= most) fail(from.place(), "found the token id ", id, ", expected 0 to ", most - 1);
        return static_cast<std::int32_t>(id);
    }
    void define(const std::string& content, std::int32_t id, const json::value& place);

    /// No match of DeepSeek's patterns spans a line's end and a letter after it, nor looks over it.
    [[nodiscard]] static bool cut_between(char before, char after) {
        return before == '\n' && ((after >= 'a' && after <= 'z') || (after >= 'A' && after <= 'Z'));
    }
    static void check(std::string_view text) {
        const std::size_t bad = detail::find_bad_utf8(text);
        if (bad != std::string_view::npos)
            fail("found a byte that is not UTF-8 at offset ", bad, " of the text, expected UTF-8");
    }

    /// Calls plain(text) and added(content, id) for the stretches of the text, in order.
    template <class Plain, class Added>
    void segments(std::string_view text, const Plain& plain, const Added& added, std::size_t pass = 0) const {
        if (pass == added_.size()) {
            if (!text.empty()) plain(text);
            return;
        }
        detail::added_tokens::match found;
        std::size_t at = 0;
        while (added_[pass].find(text, at, found)) {
            segments(text.substr(at, found.first - at), plain, added, pass + 1);
            added(text.substr(found.first, found.last - found.first), found.id);
            at = found.last;
        }
        segments(text.substr(at), plain, added, pass + 1);
    }

    void encode_checked(std::string_view text, scratch& with, std::vector<std::int32_t>& ids) const {
        const auto piece = [&](std::string_view bytes) {
            if (detail::word_cache::word* word = with.cache.find(bytes)) {
                if (!word->count) {
                    const auto& merged = encode_piece(bytes, with);
                    if (!word->keep(merged)) {
                        ids.insert(ids.end(), merged.begin(), merged.end());
                        return;
                    }
                }
                ids.insert(ids.end(), word->ids, word->ids + word->count);
            } else {
                const auto& merged = encode_piece(bytes, with);
                ids.insert(ids.end(), merged.begin(), merged.end());
            }
        };
        segments(
            text, [&](std::string_view plain) { split_(plain, with.match, piece); },
            [&](std::string_view, std::int32_t id) { ids.push_back(id); });
    }

    [[nodiscard]] const std::vector<std::int32_t>& encode_piece(std::string_view bytes, scratch& with) const {
        if (ignore_merges_) {
            const auto whole = ids_.find(detail::spelled(bytes));
            if (whole != ids_.end()) return with.merge.whole(whole->second);
        }
        return with.merge(bytes, merges_, byte_ids_);
    }

    detail::splitter split_;
    detail::merges merges_{0};
    bool cuttable_ = split_.is_deepseek();
    bool ignore_merges_ = false;
    std::array<std::int32_t, 256> byte_ids_{};
    std::unordered_map<std::string, std::int32_t> ids_;
    std::vector<std::string> bytes_;             // bytes_[vocab]: what each id decodes to
    std::vector<bool> special_;                  // special_[vocab]
    std::array<detail::added_tokens, 2> added_;  // not normalized, then normalized: searched in this order
    std::unique_ptr<pool> pool_ = std::make_unique<pool>();
};

inline tokenizer::tokenizer(const json::value& file) : split_{file.at("pre_tokenizer")} {
    if (const json::value* normalizer = file.find("normalizer"); normalizer && !normalizer->is_null()) {
        const std::string& type = normalizer->at("type").as_string();
        if (type != "Sequence" || normalizer->at("normalizers").size() > 0)
            fail(normalizer->place(), "found the normalizer ", type, ", expected none");
    }
    if (const std::string& type = file.at("decoder").at("type").as_string(); type != "ByteLevel")
        fail(file.at("decoder").place(), "found the decoder ", type, ", expected ByteLevel");
    read_model(file.at("model"));
    if (const json::value* added = file.find("added_tokens"); added && !added->is_null()) read_added_tokens(*added);
}

inline void tokenizer::define(const std::string& content, std::int32_t id, const json::value& place) {
    const auto slot = static_cast<std::size_t>(id);
    if (slot >= bytes_.size()) {
        bytes_.resize(slot + 1);
        special_.resize(slot + 1);
    } else if (!bytes_[slot].empty()) {
        fail(place.place(), "found id ", id, " a second time, for \"", content, "\"; expected one token an id");
    }
    ids_.emplace(content, id);
    if (!detail::unspell(content, bytes_[slot])) bytes_[slot] = content;
}

inline void tokenizer::read_model(const json::value& model) {
    const auto off = [&](std::string_view key) {
        const json::value* set = model.find(key);
        const bool unset = !set || set->is_null() || (set->is_string() && set->as_string().empty()) ||
                           (set->is_bool() && !set->as_bool()) || (set->is_number() && set->as_number() == 0);
        if (!unset) fail(set->place(), "found ", key, " set to ", set->description(), ", expected it unset");
    };
    if (const std::string& type = model.at("type").as_string(); type != "BPE")
        fail(model.at("type").place(), "found the model ", type, ", expected BPE");
    for (const auto* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"}) off(key);
    if (const json::value* ignore = model.find("ignore_merges")) ignore_merges_ = ignore->as_bool();

    const auto& vocab = model.at("vocab").members();
    ids_.reserve(vocab.size());
    for (const auto& [content, id] : vocab) define(content, id_of(id), id);
    for (std::size_t byte = 0; byte < 256; ++byte) {
        std::string content;
        detail::append_code_point(content, detail::byte_alphabet[byte]);
        const auto at = ids_.find(content);
        if (at == ids_.end())
            fail(model.at("vocab").place(), "found no token \"", content, "\" for byte ", byte,
                 ", expected all 256 bytes");
        byte_ids_[byte] = at->second;
    }

    const auto& list = model.at("merges").items();
    merges_ = detail::merges{list.size()};
    std::uint32_t rank = 0;
    for (const json::value& merge : list) {
        std::string left, right;
        if (merge.is_string()) {
            const std::string& both = merge.as_string();
            const std::size_t space = both.find(' ');
            if (space == std::string::npos || both.find(' ', space + 1) != std::string::npos)
                fail(merge.place(), "found the merge \"", both, "\", expected two tokens with one space between");
            left = both.substr(0, space);
            right = both.substr(space + 1);
        } else {
            if (merge.size() != 2) fail(merge.place(), "found a merge of ", merge.size(), ", expected two tokens");
            left = merge.items()[0].as_string();
            right = merge.items()[1].as_string();
        }
        const auto known = [&](const std::string& content) {
            const auto at = ids_.find(content);
            if (at == ids_.end())
                fail(merge.place(), "found \"", content, "\" in a merge, expected a token of the vocabulary");
            return at->second;
        };
        const std::int32_t left_id = known(left), right_id = known(right);
        merges_.add(left_id, right_id, rank++, known(left + right));
    }
}

inline void tokenizer::read_added_tokens(const json::value& list) {
    for (const json::value& token : list.items()) {
        for (const auto* key : {"lstrip", "rstrip", "single_word"}) {
            const json::value* set = token.find(key);
            if (set && set->as_bool()) fail(set->place(), "found ", key, " true, expected false");
        }
        const std::string& content = token.at("content").as_string();
        const std::int32_t id = id_of(token.at("id"));
        if (const auto known = find(content); !known) {
            define(content, id, token);
        } else if (*known != id) {
            fail(token.place(), "found id ", id, " for \"", content, "\", expected ", *known, " as in the vocabulary");
        }
        special_[static_cast<std::size_t>(id)] = token.at("special").as_bool();
        added_[token.at("normalized").as_bool() ? 1 : 0].add(content, id);
        for (std::size_t i = 1; i < content.size(); ++i) cuttable_ &= !cut_between(content[i - 1], content[i]);
    }
    for (auto& set : added_) set.finish();
}

inline std::vector<std::int32_t> tokenizer::encode(std::string_view text, int workers) const {
    constexpr std::size_t least = 64 * 1024;
    const std::size_t most = text.size() / least;
    const std::size_t count = workers < 1 ? 1 : std::min(static_cast<std::size_t>(workers), most);
    if (count < 2 || !cuttable_) return encode(text);
    std::vector<std::size_t> cuts{0};
    for (std::size_t i = 1; i < count; ++i) {
        std::size_t at = std::max(cuts.back(), text.size() / count * i) + 1;
        while (at < text.size() && !cut_between(text[at - 1], text[at])) ++at;
        if (at < text.size()) cuts.push_back(at);
    }
    cuts.push_back(text.size());
    std::vector<std::vector<std::int32_t>> parts(cuts.size() - 1);
    check(text);
    detail::run_workers(parts.size(), parts.size(), [&](std::size_t i) {
        const borrowed worker{*pool_};
        encode_checked(text.substr(cuts[i], cuts[i + 1] - cuts[i]), *worker.scratch, parts[i]);
    });
    std::vector<std::int32_t> ids = std::move(parts[0]);
    for (std::size_t i = 1; i < parts.size(); ++i) ids.insert(ids.end(), parts[i].begin(), parts[i].end());
    return ids;
}

}  // namespace fathom
