// What a run saw, for programs: one JSON object a line, each whole in the file as soon as it is written.
#pragma once

#include <cerrno>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fathom/core/error.hpp>
#include <initializer_list>
#include <string>
#include <string_view>

namespace fathom::observe {

/// A name and a number or text. A number that is not finite becomes null, which is all that JSON has for it.
class log_field {
  public:
    log_field(const char* name, std::floating_point auto number) : name_(name) {
        char digits[32];
        std::snprintf(digits, sizeof digits, "%.10g", static_cast<double>(number));
        value_ = std::isfinite(number) ? digits : "null";
    }
    log_field(const char* name, std::integral auto number) : name_(name), value_(std::to_string(number)) {}
    log_field(const char* name, std::string_view text) : name_(name), value_(1, '"') {
        for (const char c : text) {
            char escape[8];
            if (c == '"' || c == '\\')
                value_ += {'\\', c};
            else if (static_cast<unsigned char>(c) >= 0x20)
                value_ += c;
            else
                value_.append(escape, static_cast<std::size_t>(std::snprintf(escape, sizeof escape, "\\u%04x", c)));
        }
        value_ += '"';
    }
    log_field(const char* name, const char* text) : log_field(name, std::string_view{text}) {}

    [[nodiscard]] std::string text() const { return '"' + std::string{name_} + "\": " + value_; }

  private:
    const char* name_;
    std::string value_;
};

/// A file of such lines.
class log {
  public:
    /// Appends to what is there. Errors: a file that cannot be opened; names it and the reason.
    explicit log(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "a")) {
        if (file_ == nullptr) fail(path, ": cannot be opened to write: ", std::strerror(errno));
    }
    log(const log&) = delete;
    log& operator=(const log&) = delete;
    ~log() { std::fclose(file_); }

    /// {"kind": KIND, FIELDS...}. Errors: what the system refuses, such as a full disk.
    void write(std::string_view kind, std::initializer_list<log_field> fields) {
        std::string line = '{' + log_field{"kind", kind}.text();
        for (const log_field& field : fields) line += ", " + field.text();
        line += "}\n";
        if (std::fwrite(line.data(), 1, line.size(), file_) != line.size() || std::fflush(file_) != 0)
            fail(path_, ": cannot be written: ", std::strerror(errno));
    }
    [[nodiscard]] const std::string& path() const { return path_; }

  private:
    std::string path_;
    std::FILE* file_;
};

}  // namespace fathom::observe
