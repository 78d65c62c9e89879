// JSON of our own: the four packages that Fathom needs hold none and Debian 12 has no light header for it, and files
// from strangers (safetensors, tokenizer.json, config.json) call for a strict reader that says where it stopped.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fathom/core/error.hpp"
#include "fathom/core/file.hpp"

namespace fathom::json {

class value;
namespace detail {
class parser;
}
using array = std::vector<value>;
/// Members in the order of the file.
using object = std::vector<std::pair<std::string, value>>;

/// One JSON value. One that was parsed knows its place, which every error about it names as file:line:column (a column
/// counts bytes from 1).
class value {
  public:
    value() = default;
    value(std::nullptr_t) {}
    value(std::same_as<bool> auto truth) : kind_{kind::truth}, whole_{truth} {}
    template <std::integral T>
    requires(!std::same_as<T, bool> && !std::same_as<T, char>) value(T number)
        : kind_{kind::whole}, whole_{static_cast<std::int64_t>(number)} {
        if (!std::in_range<std::int64_t>(number))
            fail("json: found the integer ", number, ", expected at most 2^63 - 1");
    }
    value(std::string text) : kind_{kind::text}, text_{std::move(text)} {}
    value(std::string_view text) : kind_{kind::text}, text_{text} {}
    value(const char* text) : kind_{kind::text}, text_{text} {}
    value(array items) : kind_{kind::list}, items_(std::move(items)) {}
    value(object members) : kind_{kind::record}, members_(std::move(members)) {}
    value(std::floating_point auto number) : kind_{kind::real}, real_{static_cast<double>(number)} {}

    [[nodiscard]] bool is_null() const { return kind_ == kind::null; }
    [[nodiscard]] bool is_bool() const { return kind_ == kind::truth; }
    /// Written without fraction and exponent, and within 64 bits.
    [[nodiscard]] bool is_integer() const { return kind_ == kind::whole; }
    [[nodiscard]] bool is_number() const { return is_integer() || kind_ == kind::real; }
    [[nodiscard]] bool is_string() const { return kind_ == kind::text; }
    [[nodiscard]] bool is_array() const { return kind_ == kind::list; }
    [[nodiscard]] bool is_object() const { return kind_ == kind::record; }

    /// The value as this kind. Errors: another kind; names the place and what was found.
    [[nodiscard]] bool as_bool() const { return expect(is_bool(), "true or false").whole_ != 0; }
    [[nodiscard]] std::int64_t as_int() const { return expect(is_integer(), "an integer of 64 bits").whole_; }
    [[nodiscard]] double as_number() const {
        return is_integer() ? static_cast<double>(whole_) : expect(is_number(), "a number").real_;
    }
    [[nodiscard]] const std::string& as_string() const { return expect(is_string(), "a string").text_; }
    [[nodiscard]] const array& items() const { return expect(is_array(), "an array").items_; }
    [[nodiscard]] const object& members() const { return expect(is_object(), "an object").members_; }

    /// Items of an array or members of an object.
    [[nodiscard]] std::size_t size() const { return is_array() ? items().size() : members().size(); }

    /// The member of that name, or nullptr. Takes time linear in the members; read large objects through `members`.
    [[nodiscard]] const value* find(std::string_view key) const {
        for (const auto& [name, member] : members())
            if (name == key) return &member;
        return nullptr;
    }
    /// The member of that name. Errors: there is none; names the place and the key.
    [[nodiscard]] const value& at(std::string_view key) const {
        if (const value* member = find(key)) return *member;
        fail(place(), "found an object without \"", key, "\", expected that member");
    }

    /// Sets or replaces a member; a null becomes an object.
    value& set(std::string_view key, value to) {
        if (is_null()) kind_ = kind::record;
        (void)members();
        for (auto& [name, member] : members_)
            if (name == key) return member = std::move(to);
        return members_.emplace_back(key, std::move(to)).second;
    }
    /// Appends an item; a null becomes an array.
    value& push(value item) {
        if (is_null()) kind_ = kind::list;
        (void)items();
        return items_.emplace_back(std::move(item));
    }

    /// "file:line:column: " of a parsed value, for errors about what it means; otherwise "json: ".
    [[nodiscard]] std::string place() const {
        return file_ ? text_of(*file_, ':', line_, ':', column_, ": ") : std::string{"json: "};
    }
    /// The kind, with the value where that is short, for errors: `the string "abc"`.
    [[nodiscard]] std::string description() const {
        if (is_null()) return "null";
        if (is_bool()) return as_bool() ? "true" : "false";
        if (is_integer()) return text_of("the integer ", as_int());
        if (is_number()) return text_of("the number ", as_number());
        if (is_array()) return text_of("an array of ", size());
        if (is_object()) return text_of("an object of ", size());
        return as_string().size() > 40 ? text_of("a string of ", as_string().size(), " bytes")
                                       : text_of("the string \"", as_string(), '"');
    }

  private:
    friend class detail::parser;

    [[nodiscard]] const value& expect(bool holds, const char* expected) const {
        if (holds) return *this;
        fail(place(), "found ", description(), ", expected ", expected);
    }

    // A member a kind rather than std::variant, which would be a tenth of what fathom.hpp costs the compiler.
    enum class kind : unsigned char { null, truth, whole, real, text, list, record } kind_ = kind::null;
    std::int64_t whole_ = 0;
    double real_ = 0;
    std::string text_;
    array items_;
    object members_;
    std::shared_ptr<const std::string> file_;
    std::uint32_t line_ = 0, column_ = 0;
};

namespace detail {

/// Bytes of the well-formed UTF-8 character at the start of `text` (no overlong forms, no surrogates), 0 if there is
/// none.
[[nodiscard]] inline std::size_t utf8_length(std::string_view text) {
    const auto byte = [text](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
    const auto follows = [&](std::size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
    const unsigned first = byte(0), second = byte(1);
    if (first < 0x80) return text.empty() ? 0 : 1;
    if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
    if (first >= 0xE0 && first <= 0xEF) {
        const bool bad = (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F);
        return !bad && follows(1) && follows(2) ? 3 : 0;
    }
    if (first >= 0xF0 && first <= 0xF4) {
        const bool bad = (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F);
        return !bad && follows(1) && follows(2) && follows(3) ? 4 : 0;
    }
    return 0;
}

inline void append_utf8(std::string& text, std::uint32_t point) {
    const auto add = [&text](std::uint32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
    if (point < 0x80) return add(point);
    if (point < 0x800) {
        add(0xC0 | point >> 6);
    } else {
        if (point < 0x10000) {
            add(0xE0 | point >> 12);
        } else {
            add(0xF0 | point >> 18);
            add(0x80 | (point >> 12 & 0x3F));
        }
        add(0x80 | (point >> 6 & 0x3F));
    }
    add(0x80 | (point & 0x3F));
}

/// Recursive descent over one text; `parse` is its only user.
class parser {
  public:
    parser(std::string_view text, std::string_view file_name)
        : text_{text}, file_{std::make_shared<const std::string>(file_name)} {}

    [[nodiscard]] value document() {
        if (text_.starts_with("\xEF\xBB\xBF")) stop("a byte order mark", "plain UTF-8");
        value root = any(0);
        skip_space();
        if (at_ != text_.size()) stop(here(), "the end of the file");
        return root;
    }

  private:
    static constexpr int deepest = 128;

    [[noreturn]] void stop(std::string_view found, std::string_view expected) const {
        fail(*file_, ':', line_, ':', at_ - line_start_ + 1, ": found ", found, ", expected ", expected);
    }
    [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
    [[nodiscard]] std::string here() const {
        if (at_ == text_.size()) return "the end of the file";
        const auto byte = static_cast<unsigned char>(text_[at_]);
        const std::size_t length = utf8_length(text_.substr(at_));
        if (byte >= 0x20 && length > 0) return text_of('\'', text_.substr(at_, length), '\'');
        constexpr const char* digits = "0123456789ABCDEF";
        return text_of("the byte 0x", digits[byte >> 4], digits[byte & 15]);
    }

    void skip_space() {
        for (; at_ < text_.size(); ++at_) {
            const char c = text_[at_];
            if (c == '\n') {
                ++line_;
                line_start_ = at_ + 1;
            } else if (c != ' ' && c != '\t' && c != '\r') {
                return;
            }
        }
    }
    bool take(char c) {
        if (peek() != c || at_ == text_.size()) return false;
        ++at_;
        return true;
    }

    [[nodiscard]] value any(int depth) {
        skip_space();
        value result;
        result.file_ = file_;
        result.line_ = line_;
        result.column_ = static_cast<std::uint32_t>(at_ - line_start_ + 1);
        if (depth > deepest) stop(text_of("more than ", deepest, " levels of nesting"), "fewer");
        switch (peek()) {
            case '{':
                result.kind_ = value::kind::record, result.members_ = read_object(depth);
                break;
            case '[':
                result.kind_ = value::kind::list, result.items_ = read_array(depth);
                break;
            case '"':
                result.kind_ = value::kind::text, result.text_ = read_string();
                break;
            case 't':
                read_word("true"), result.kind_ = value::kind::truth, result.whole_ = 1;
                break;
            case 'f':
                read_word("false"), result.kind_ = value::kind::truth;
                break;
            case 'n':
                read_word("null");
                break;
            default:
                read_number(result);
        }
        return result;
    }

    void read_word(std::string_view word) {
        for (const char c : word)
            if (!take(c)) stop(here(), text_of('"', word, '"'));
    }

    [[nodiscard]] array read_array(int depth) {
        array result;
        ++at_;
        skip_space();
        if (take(']')) return result;
        do {
            result.push_back(any(depth + 1));
            skip_space();
        } while (take(','));
        if (!take(']')) stop(here(), "',' or ']' after an item");
        return result;
    }

    [[nodiscard]] object read_object(int depth) {
        object result;
        ++at_;
        skip_space();
        if (take('}')) return result;
        do {
            skip_space();
            if (peek() != '"') stop(here(), "a member name in quotes");
            std::string name = read_string();
            skip_space();
            if (!take(':')) stop(here(), "':' after a member name");
            result.emplace_back(std::move(name), any(depth + 1));
            skip_space();
        } while (take(','));
        if (!take('}')) stop(here(), "',' or '}' after a member");
        refuse_duplicates(result);
        return result;
    }

    /// Sorted, not hashed: no chosen set of names makes this slow.
    static void refuse_duplicates(const object& members) {
        const auto name_less = [](const auto* a, const auto* b) { return a->first < b->first; };
        std::vector<const object::value_type*> sorted;
        sorted.reserve(members.size());
        for (const auto& member : members) sorted.push_back(&member);
        std::sort(sorted.begin(), sorted.end(), name_less);
        const auto twice = std::adjacent_find(sorted.begin(), sorted.end(),
                                              [](const auto* a, const auto* b) { return a->first == b->first; });
        if (twice == sorted.end()) return;
        const auto& second = std::max(twice[0], twice[1])->second;
        fail(second.place(), "found the member \"", (*twice)->first, "\" a second time, expected each name once");
    }

    [[nodiscard]] std::string read_string() {
        std::string result;
        ++at_;
        for (std::size_t start = at_;;) {
            while (at_ < text_.size() && plain(text_[at_])) ++at_;
            if (at_ < text_.size() && static_cast<unsigned char>(text_[at_]) >= 0x80) {
                const std::size_t length = utf8_length(text_.substr(at_));
                if (length == 0) stop(here(), "UTF-8");
                at_ += length;
                continue;
            }
            result.append(text_, start, at_ - start);
            if (take('"')) return result;
            if (peek() != '\\')
                stop(here(), at_ == text_.size() ? "'\"'" : "an escape such as \\n for a control character");
            ++at_;
            read_escape(result);
            start = at_;
        }
    }
    [[nodiscard]] static bool plain(char c) {
        return static_cast<unsigned char>(c) >= 0x20 && static_cast<unsigned char>(c) < 0x80 && c != '"' && c != '\\';
    }

    void read_escape(std::string& result) {
        constexpr std::string_view letters = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
        const auto which = at_ < text_.size() ? letters.find(peek()) : letters.npos;
        if (which != letters.npos) {
            ++at_;
            result += meanings[which];
            return;
        }
        if (!take('u')) stop(here(), "one of \" \\ / b f n r t u after '\\'");
        std::uint32_t point = read_hex();
        if (point >= 0xDC00 && point <= 0xDFFF) stop("the second half of a surrogate pair alone", "a pair");
        if (point >= 0xD800 && point <= 0xDBFF) {
            if (!take('\\') || !take('u')) stop("the first half of a surrogate pair alone", "a pair");
            const std::uint32_t low = read_hex();
            if (low < 0xDC00 || low > 0xDFFF) stop("the first half of a surrogate pair alone", "a pair");
            point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
        }
        append_utf8(result, point);
    }
    [[nodiscard]] std::uint32_t read_hex() {
        std::uint32_t result = 0;
        for (int i = 0; i < 4; ++i, ++at_) {
            const char c = peek();
            const int digit = c >= '0' && c <= '9'   ? c - '0'
                              : c >= 'a' && c <= 'f' ? c - 'a' + 10
                              : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                     : -1;
            if (digit < 0) stop(here(), "four hexadecimal digits after \\u");
            result = result << 4 | static_cast<std::uint32_t>(digit);
        }
        return result;
    }

    void read_number(value& result) {
        const std::size_t start = at_;
        const auto digits = [this](const char* expected) {
            if (peek() < '0' || peek() > '9') stop(here(), expected);
            while (peek() >= '0' && peek() <= '9') ++at_;
        };
        const bool negative = take('-');
        if (!take('0')) digits(negative ? "a digit after '-'" : "a value");
        bool whole = true;
        if (take('.')) {
            whole = false;
            digits("a digit after '.'");
        }
        if (take('e') || take('E')) {
            whole = false;
            if (!take('+')) take('-');
            digits("a digit in the exponent");
        }
        const char *first = text_.data() + start, *last = text_.data() + at_;
        const bool minus_zero = negative && at_ - start == 2 && first[1] == '0';  // an integer would lose the sign
        std::int64_t exact = 0;
        if (whole && !minus_zero && std::from_chars(first, last, exact).ec == std::errc{}) {
            result.kind_ = value::kind::whole, result.whole_ = exact;
            return;
        }
        double number = 0;
        if (std::from_chars(first, last, number).ec != std::errc{}) {
            at_ = start;
            stop(text_of("the number ",
                         text_.substr(start, std::min<std::size_t>(40, static_cast<std::size_t>(last - first)))),
                 "one that a double can hold");
        }
        result.kind_ = value::kind::real, result.real_ = number;
    }

    std::string_view text_;
    std::shared_ptr<const std::string> file_;
    std::size_t at_ = 0, line_start_ = 0;
    std::uint32_t line_ = 1;
};

}  // namespace detail

/// The value that `text` spells. Integers that fit 64 bits stay exact, other numbers are doubles. Errors: anything
/// outside RFC 8259, a name twice in an object, nesting beyond 128, bytes that are not UTF-8, a number beyond double;
/// each names file_name:line:column, what was found and what was expected.
[[nodiscard]] inline value parse(std::string_view text, std::string_view file_name) {
    return detail::parser{text, file_name}.document();
}

/// The value in a file. Errors: those of `mapped_file` and `parse`.
[[nodiscard]] inline value parse_file(const std::string& path) {
    const mapped_file file{path};
    return parse(file.text(), path);
}

namespace detail {

inline void write_string(std::string& out, std::string_view text) {
    constexpr std::string_view controls = "\b\f\n\r\t", letters = "bfnrt";
    out += '"';
    for (std::size_t i = 0, length = 0; i < text.size(); i += length) {
        length = utf8_length(text.substr(i));
        if (length == 0) fail("json: found bytes that are not UTF-8 in a string to write, at byte ", i);
        const char c = text[i];
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (const auto which = controls.find(c); which != controls.npos) {
            out += '\\';
            out += letters[which];
        } else if (static_cast<unsigned char>(c) < 0x20) {
            out += "\\u00";
            out += "01"[c >> 4];
            out += "0123456789abcdef"[c & 15];
        } else {
            out.append(text, i, length);
        }
    }
    out += '"';
}

inline void write_number(std::string& out, double number) {
    if (!std::isfinite(number)) fail("json: found the number ", number, " to write, expected a finite one");
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
    const std::string_view text{digits, static_cast<std::size_t>(end - digits)};
    out += text;
    // A double stays one when it is read again.
    if (text.find_first_of(".e") == text.npos) out += ".0";
}

inline void write(std::string& out, const value& from, int indent, int depth) {
    const auto line = [&](int level) {
        if (indent > 0) out.append(1, '\n').append(static_cast<std::size_t>(indent * level), ' ');
    };
    const auto list = [&](const auto& entries, char open, char close, const auto& entry) {
        out += open;
        for (std::size_t i = 0; i < entries.size(); ++i) {
            if (i > 0) out += ',';
            line(depth + 1);
            entry(entries[i]);
        }
        if (!entries.empty()) line(depth);
        out += close;
    };
    if (from.is_null()) {
        out += "null";
    } else if (from.is_bool()) {
        out += from.as_bool() ? "true" : "false";
    } else if (from.is_integer()) {
        out += std::to_string(from.as_int());
    } else if (from.is_number()) {
        write_number(out, from.as_number());
    } else if (from.is_string()) {
        write_string(out, from.as_string());
    } else if (from.is_array()) {
        list(from.items(), '[', ']', [&](const value& item) { write(out, item, indent, depth + 1); });
    } else {
        list(from.members(), '{', '}', [&](const auto& member) {
            write_string(out, member.first);
            out += indent > 0 ? ": " : ":";
            write(out, member.second, indent, depth + 1);
        });
    }
}

}  // namespace detail

/// The text of a value: on one line, or with `indent` spaces a level. Numbers read back as the same bits and kind.
/// Errors: a number that is not finite, a string that is not UTF-8.
[[nodiscard]] inline std::string write(const value& from, int indent = 0) {
    std::string out;
    detail::write(out, from, indent, 0);
    return out;
}

}  // namespace fathom::json
