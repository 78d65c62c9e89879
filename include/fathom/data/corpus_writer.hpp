// Documents that are tokens already become a corpus file; make_corpus does it from text, others may bring their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fathom/core/error.hpp"
#include "fathom/core/file.hpp"
#include "fathom/data/detail/corpus_layout.hpp"

namespace fathom {

/// Collects documents in memory and writes them as one file that `corpus` opens.
class corpus_writer {
  public:
    /// `end_of_document` is put behind every document. Errors: an id or vocabulary out of range.
    corpus_writer(std::int32_t vocab_size, std::int32_t end_of_document)
        : vocab_size_{vocab_size}, end_of_document_{end_of_document} {
        if (vocab_size < 1) fail("corpus: found vocab_size ", vocab_size, ", expected at least 1");
        if (end_of_document < 0 || end_of_document >= vocab_size)
            fail("corpus: found end_of_document ", end_of_document, ", expected 0 to ", vocab_size - 1);
    }

    /// Appends a document. `text_bytes` is the size of the text it was; `held_out` keeps it from training.
    /// Errors: an id outside the vocabulary.
    void add(std::span<const std::int32_t> ids, std::uint64_t text_bytes, bool held_out) {
        for (std::size_t i = 0; i < ids.size(); ++i)
            if (ids[i] < 0 || ids[i] >= vocab_size_)
                fail("corpus: document ", text_bytes_.size(), " has id ", ids[i], " at token ", i, ", expected 0 to ",
                     vocab_size_ - 1);
        append(ids);
        append({&end_of_document_, 1});
        starts_.push_back(starts_.back() + ids.size() + 1);
        text_bytes_.push_back(text_bytes);
        held_out_.push_back(held_out ? 1 : 0);
    }

    /// Writes the file: all of it or nothing. Errors: no document; those of write_atomically.
    void write(const std::string& path) const {
        if (text_bytes_.empty()) fail(path, ": found no document to write, expected at least one");
        detail::corpus_header header{};
        std::memcpy(header.magic, header.expected_magic, sizeof header.magic);
        header.version = header.expected_version;
        header.token_bytes = detail::token_width(static_cast<std::uint32_t>(vocab_size_));
        header.vocab_size = static_cast<std::uint32_t>(vocab_size_);
        header.end_of_document = static_cast<std::uint32_t>(end_of_document_);
        header.documents = text_bytes_.size();
        header.tokens = starts_.back();
        const std::uint64_t zeros = 0;
        write_atomically(
            path, {std::as_bytes(std::span{&header, 1}), std::as_bytes(std::span{starts_}),
                   std::as_bytes(std::span{text_bytes_}), std::as_bytes(std::span{held_out_}),
                   std::as_bytes(std::span{&zeros, 1}).first(detail::padding_after(header.documents)),
                   header.token_bytes == 2 ? std::as_bytes(std::span{narrow_}) : std::as_bytes(std::span{wide_})});
    }

  private:
    void append(std::span<const std::int32_t> ids) {
        if (detail::token_width(static_cast<std::uint32_t>(vocab_size_)) == 2) {
            for (const std::int32_t id : ids) narrow_.push_back(static_cast<std::uint16_t>(id));
        } else {
            for (const std::int32_t id : ids) wide_.push_back(static_cast<std::uint32_t>(id));
        }
    }

    std::int32_t vocab_size_, end_of_document_;
    std::vector<std::uint64_t> starts_{0}, text_bytes_;
    std::vector<std::uint8_t> held_out_;
    std::vector<std::uint16_t> narrow_;  // the tokens, in the one of the two that the vocabulary asks for
    std::vector<std::uint32_t> wide_;
};

}  // namespace fathom
