// The C++ text of a model's description: what people paste into their program instead of copying numbers by hand.
#pragma once

#include <charconv>
#include <fathom/core/error.hpp>
#include <fathom/models/detail/config_keys.hpp>
#include <string>
#include <string_view>

namespace fathom::models {

namespace detail {

/// Words between angle brackets, some on each line.
class word_list {
  public:
    explicit word_list(std::string indent) : indent_(std::move(indent)) {}

    void add(std::string_view name, std::string_view argument) {
        const std::string word = text_of(name, '<', argument, '>');
        if (!text_.empty()) text_ += ',';
        const std::size_t line = text_.size() - text_.rfind('\n') - 1;
        if (text_.empty() || line + word.size() > 108)
            text_ += text_of('\n', indent_);
        else
            text_ += ' ';
        text_ += word;
    }
    void add(std::string_view name, integer value) { add(name, std::to_string(value)); }
    void add(std::string_view name, bool value) { add(name, value ? "true" : "false"); }
    void add(std::string_view name, const char* value) { add(name, std::string_view{value}); }
    void add(std::string_view name, double value) {
        char digits[32];
        std::string text{digits, std::to_chars(digits, digits + sizeof digits, value).ptr};
        // Beyond int a whole number would have to choose between types.
        if (text.find_first_of(".e") == text.npos && text.size() > 9) text += ".0";
        add(name, text);
    }
    [[nodiscard]] const std::string& text() const { return text_; }

  private:
    std::string indent_, text_;
};

}  // namespace detail

/// `struct NAME : deepseek_v3<...> {};`, every word that says what would not go without saying. Errors: a name that is
/// no identifier.
[[nodiscard]] inline std::string description(const model_config& c, std::string_view name) {
    using namespace detail;
    const auto letter = [](char x) { return (x >= 'a' && x <= 'z') || (x >= 'A' && x <= 'Z') || x == '_'; };
    bool identifier = !name.empty() && letter(name[0]);
    for (const char x : name) identifier = identifier && (letter(x) || (x >= '0' && x <= '9'));
    if (!identifier) fail("describe: found the name \"", name, "\", expected letters, digits and _");

    const family_facts& kind = facts_of(c.type);
    word_list words{"    "};
    for (const size_key& key : size_keys)
        if (key.families & bit(c.type) && c.*key.member != kind.absent.*key.member) words.add(key.name, c.*key.member);
    for (const switch_key& key : switch_keys)
        if (key.families & bit(c.type) && c.*key.member != kind.absent.*key.member) words.add(key.name, c.*key.member);
    for (const real_key& key : real_keys)
        if (key.families & bit(c.type) && c.*key.member != kind.absent.*key.member) words.add(key.name, c.*key.member);
    if (c.rope.theta != rope{}.theta) words.add("rope_theta", c.rope.theta);
    if (c.rope.kind != rope::scaling::none) {
        const bool yarn = c.rope.kind == rope::scaling::yarn;
        word_list inner{"         "};
        for (const rope_key& key : rope_keys)
            if (key.required || (yarn && c.rope.*key.member != rope{}.*key.member))
                inner.add(key.name, c.rope.*key.member);
        if (yarn) inner.add(original_length, c.rope.original_max_position_embeddings);
        words.add(yarn ? "yarn" : "linear_rope",
                  std::string_view{inner.text()}.substr(inner.text().find_first_not_of("\n ")));
    }
    return text_of("struct ", name, " : ", kind.word, "<", words.text(), "> {};\n");
}

}  // namespace fathom::models
