// The pre-tokenizer of a tokenizer.json: the chain of patterns that cuts a text into the pieces which merges stay
// inside.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/core/error.hpp"
#include "fathom/core/json.hpp"
#include "fathom/data/detail/pattern.hpp"

namespace fathom::detail {

/// The patterns of DeepSeek-V2, V3 and V4, and of the tokenizers that Fathom trains.
inline constexpr std::string_view deepseek_patterns[] = {
    "\\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
    "?[\\p{P}\\p{S}]+[\r\n]*"
    "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
};

/// Patterns applied one inside the pieces of the other. A match is a piece, and so is what lies between two matches.
class splitter {
  public:
    /// From the "pre_tokenizer" of a tokenizer.json: ByteLevel, Split, Digits, or a Sequence of them.
    explicit splitter(const json::value& from) {
        bool byte_level = false;
        add(from, byte_level);
        if (!byte_level) fail(from.place(), "found a pre_tokenizer without ByteLevel, expected a byte-level tokenizer");
    }

    [[nodiscard]] bool is_deepseek() const {
        return std::equal(sources_.begin(), sources_.end(), std::begin(deepseek_patterns), std::end(deepseek_patterns));
    }

    /// Calls take(piece) for every piece of the well-formed UTF-8 text, in order.
    template <class Take> void operator()(std::string_view text, matcher& with, Take&& take) const {
        split(0, text, with, take);
    }

  private:
    void add(const json::value& from, bool& byte_level) {
        const std::string& type = from.at("type").as_string();
        if (byte_level) fail(from.place(), "found ", type, " after ByteLevel, expected ByteLevel last");
        if (type == "Sequence") {
            for (const json::value& part : from.at("pretokenizers").items()) add(part, byte_level);
        } else if (type == "Split") {
            const std::string& behavior = from.at("behavior").as_string();
            if (behavior != "Isolated")
                fail(from.at("behavior").place(), "found the behavior ", behavior, ", expected Isolated");
            const json::value& written = from.at("pattern");
            if (const json::value* text = written.find("String")) {
                add_pattern(literal(text->as_string()), text->place());
            } else {
                add_pattern(written.at("Regex").as_string(), written.at("Regex").place());
            }
        } else if (type == "Digits") {
            add_pattern(from.at("individual_digits").as_bool() ? "\\p{N}" : "\\p{N}+", from.place());
        } else if (type == "ByteLevel") {
            byte_level = true;
            const json::value* prefix = from.find("add_prefix_space");
            if (!prefix || prefix->as_bool())
                fail(from.place(), "found add_prefix_space true, expected false: a text would not decode to itself");
            const json::value* patterned = from.find("use_regex");
            if (!patterned || patterned->as_bool()) {
                add_pattern("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
                            from.place());
            }
        } else {
            fail(from.at("type").place(), "found the pre-tokenizer ", type,
                 ", expected Sequence, Split, Digits or ByteLevel");
        }
    }

    void add_pattern(std::string source, std::string place) {
        if (place.ends_with(": ")) place.resize(place.size() - 2);
        patterns_.emplace_back(source, std::move(place));
        sources_.push_back(std::move(source));
    }

    [[nodiscard]] static std::string literal(std::string_view text) {
        std::string quoted;
        for (const char c : text) {
            if (std::string_view{"\\^$.[]|()?*+{}"}.find(c) != std::string_view::npos) quoted += '\\';
            quoted += c;
        }
        return quoted;
    }

    template <class Take> void split(std::size_t level, std::string_view text, matcher& with, Take& take) const {
        if (text.empty()) return;
        if (level == patterns_.size()) return take(text);
        std::size_t first = 0, last = 0;
        for (std::size_t at = 0; at < text.size(); at = last) {
            if (!patterns_[level].find(text, at, with, first, last))
                return split(level + 1, text.substr(at), with, take);
            split(level + 1, text.substr(at, first - at), with, take);
            split(level + 1, text.substr(first, last - first), with, take);
        }
    }

    std::vector<pattern> patterns_;
    std::vector<std::string> sources_;
};

}  // namespace fathom::detail
