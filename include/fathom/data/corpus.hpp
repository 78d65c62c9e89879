// Tokens on disk, read in place: a corpus may be larger than memory, and every process on a machine shares its pages.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "fathom/core/bytes.hpp"
#include "fathom/core/error.hpp"
#include "fathom/core/file.hpp"
#include "fathom/data/detail/corpus_layout.hpp"

namespace fathom {

/// A corpus file, open for reading. Its documents follow one another, each with its end-of-document token.
class corpus {
  public:
    struct document {
        integer first;       // its first token
        integer tokens;      // with the end-of-document token
        integer text_bytes;  // of the text that it was
        bool held_out;       // kept from training, for validation
    };

    /// Errors: a file that is missing, empty, cut short, too long or no corpus, or whose tables contradict themselves;
    /// names the file, what was found and what was expected. Ids are checked when they are read.
    [[nodiscard]] static corpus open(const std::string& path) { return corpus{path}; }

    [[nodiscard]] const std::string& path() const { return file_.path(); }
    [[nodiscard]] std::int32_t vocab_size() const { return static_cast<std::int32_t>(header_.vocab_size); }
    [[nodiscard]] std::int32_t end_of_document() const { return static_cast<std::int32_t>(header_.end_of_document); }
    [[nodiscard]] integer documents() const { return static_cast<integer>(header_.documents); }
    [[nodiscard]] integer tokens() const { return static_cast<integer>(header_.tokens); }

    /// Document i of `documents()`.
    [[nodiscard]] document operator[](integer i) const {
        if (i < 0 || i >= documents()) fail(path(), ": found document ", i, ", expected 0 to ", documents() - 1);
        const auto start = static_cast<integer>(number(starts_at() + 8 * i));
        return {start, static_cast<integer>(number(starts_at() + 8 * (i + 1))) - start,
                static_cast<integer>(number(text_bytes_at() + 8 * i)), byte(held_out_at() + i) != 0};
    }

    /// Copies the tokens from `first` on. Errors: a range outside the corpus; an id outside the vocabulary, with its
    /// place in the file.
    void read(integer first, std::span<std::int32_t> into) const {
        const auto count = static_cast<integer>(into.size());
        if (first < 0 || first > tokens() || count > tokens() - first)
            fail(path(), ": found tokens ", first, " to ", first + count, " asked for, expected within ", tokens());
        const integer width = header_.token_bytes;
        const auto copy = [&](auto stored) {
            const std::byte* from = file_.data().data() + tokens_at() + first * width;
            for (std::size_t i = 0; i < into.size(); ++i, from += width) {
                std::memcpy(&stored, from, sizeof stored);
                if (stored >= header_.vocab_size) refuse_id(first + static_cast<integer>(i), stored);
                into[i] = static_cast<std::int32_t>(stored);
            }
        };
        width == 2 ? copy(std::uint16_t{}) : copy(std::uint32_t{});
    }

  private:
    explicit corpus(const std::string& path) : file_{path} {
        const std::uint64_t size = file_.data().size();
        const auto refuse = [&](const auto&... parts) { fail(path, ": found ", parts...); };
        if (size == 0) refuse("an empty file, expected a corpus");
        if (size < sizeof header_) refuse(size, " bytes, expected a corpus, which has a header of ", sizeof header_);
        std::memcpy(&header_, file_.data().data(), sizeof header_);
        if (std::memcmp(header_.magic, header_.expected_magic, sizeof header_.magic) != 0)
            refuse("another kind of file, expected a corpus");
        if (header_.version != header_.expected_version)
            refuse("version ", header_.version, " of the corpus format, expected ", header_.expected_version);
        if (header_.vocab_size < 1 || header_.vocab_size > 0x7FFFFFFF)
            refuse("vocab_size ", header_.vocab_size, ", expected 1 to 2147483647");
        if (header_.token_bytes != detail::token_width(header_.vocab_size))
            refuse(header_.token_bytes, " bytes a token, expected ", detail::token_width(header_.vocab_size),
                   " for a vocabulary of ", header_.vocab_size);
        if (header_.end_of_document >= header_.vocab_size)
            refuse("end_of_document ", header_.end_of_document, ", expected below ", header_.vocab_size);
        // These bounds keep the sum below from overflowing.
        if (header_.documents < 1 || header_.documents > size || header_.tokens > size)
            refuse(header_.documents, " documents and ", header_.tokens, " tokens in ", size,
                   " bytes: the file has been cut short or damaged");
        const std::uint64_t expected = static_cast<std::uint64_t>(tokens_at()) + header_.tokens * header_.token_bytes;
        if (size != expected)
            refuse(size, " bytes, expected ", expected, size < expected ? ": the file has been cut short" : "");
        for (integer i = 0; i <= documents(); ++i) {
            const std::uint64_t start = number(starts_at() + 8 * i);
            const std::uint64_t least = i == 0 ? 0 : number(starts_at() + 8 * (i - 1)) + 1;
            const std::uint64_t most = i == 0 ? 0 : header_.tokens;
            if (start < least || start > most || (i == documents() && start != header_.tokens))
                refuse("token ", start, " as the start of document ", i, ", expected ",
                       i == documents() ? header_.tokens : least, i == documents() ? "" : " or more");
        }
    }

    [[noreturn]] void refuse_id(integer token, std::uint64_t id) const {
        fail(path(), ": found token id ", id, " at token ", token, " (byte ",
             tokens_at() + token * static_cast<integer>(header_.token_bytes), " of the file), expected below ",
             header_.vocab_size);
    }

    [[nodiscard]] integer starts_at() const { return sizeof header_; }
    [[nodiscard]] integer text_bytes_at() const { return starts_at() + 8 * (documents() + 1); }
    [[nodiscard]] integer held_out_at() const { return text_bytes_at() + 8 * documents(); }
    [[nodiscard]] integer tokens_at() const {
        return held_out_at() + documents() + static_cast<integer>(detail::padding_after(header_.documents));
    }
    [[nodiscard]] std::uint64_t number(integer at) const {
        std::uint64_t value;
        std::memcpy(&value, file_.data().data() + at, sizeof value);
        return value;
    }
    [[nodiscard]] std::uint8_t byte(integer at) const { return static_cast<std::uint8_t>(file_.data()[at]); }

    mapped_file file_;
    detail::corpus_header header_{};
};

}  // namespace fathom
