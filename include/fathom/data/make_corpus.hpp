// From text files to a corpus in one call, with the documents for validation chosen by what they say: two runs over the
// same files, in any place, hold out the same ones.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fathom/core/bytes.hpp"
#include "fathom/core/error.hpp"
#include "fathom/core/file.hpp"
#include "fathom/data/corpus_writer.hpp"
#include "fathom/data/detail/text_file.hpp"
#include "fathom/data/detail/workers.hpp"
#include "fathom/data/tokenizer.hpp"

namespace fathom {

/// How a corpus is made, and what came of it.
struct corpus_options {
    /// The share of the text, in bytes, that is held out in whole files. At least one document is, unless this is 0.
    double held_out = 0.05;
    int workers = 1;
    /// Put behind each document; by default "<｜end▁of▁sentence｜>".
    std::optional<std::int32_t> end_of_document = std::nullopt;
};

struct corpus_facts {
    integer documents = 0, held_out_documents = 0;
    integer tokens = 0, held_out_tokens = 0;  // with the end-of-document tokens
    integer text_bytes = 0, held_out_bytes = 0;
};

namespace detail {

/// A stretch of a file that becomes one document.
struct text_document {
    const std::string* path;
    std::size_t first, size;
    std::uint64_t hash;
    bool held_out = false;
};

/// Marks whole documents in the order of their hashes as long as they fit into the share, or else the smallest; equal
/// ones go together, so that no text is on both sides.
inline void hold_out(std::vector<text_document>& documents, double share) {
    struct group {
        std::size_t first, last, size;
    };
    if (share <= 0) return;
    std::vector<text_document*> sorted;
    double budget = 0;
    for (text_document& document : documents) {
        sorted.push_back(&document);
        budget += share * static_cast<double>(document.size);
    }
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->hash < b->hash; });
    std::vector<group> groups;
    for (std::size_t i = 0; i < sorted.size(); ++i) {
        if (i == 0 || sorted[i]->hash != sorted[i - 1]->hash) groups.push_back({i, i, 0});
        groups.back().last = i + 1;
        groups.back().size += sorted[i]->size;
    }
    if (groups.size() < 2) return;
    const auto mark = [&](const group& chosen) {
        budget -= static_cast<double>(chosen.size);
        for (std::size_t i = chosen.first; i < chosen.last; ++i) sorted[i]->held_out = true;
    };
    bool any = false;
    for (const group& next : groups) {
        if (static_cast<double>(next.size) > budget) continue;
        mark(next);
        any = true;
    }
    const auto smaller = [](const group& a, const group& b) { return a.size < b.size; };
    if (!any) mark(*std::min_element(groups.begin(), groups.end(), smaller));
}

/// A file alone gives two documents, cut at the end of a line: there is no other file to hold out.
inline void cut_alone(std::vector<text_document>& documents, std::string_view text, double share) {
    const auto wanted = static_cast<std::size_t>((1 - share) * static_cast<double>(text.size()));
    const std::size_t line_end = text.find('\n', wanted);
    if (share <= 0 || line_end == std::string_view::npos || line_end + 1 == text.size()) return;
    documents[0].size = line_end + 1;
    documents.push_back({documents[0].path, line_end + 1, text.size() - line_end - 1, 0, true});
}

/// The document's text, in a file that is still as it was when it was checked.
[[nodiscard]] inline std::string_view text_in(const mapped_file& file, const text_document& document) {
    if (file.text().size() < document.first + document.size)
        fail(file.path(), ": found ", file.text().size(), " bytes where there were ", document.first + document.size,
             ": the file changed while it was read");
    return file.text().substr(document.first, document.size);
}

}  // namespace detail

/// Writes the files, each one document, as a corpus at `out`. A single file is cut in two instead, and its end is held
/// out. Errors: no file; a file that is missing, empty, or no UTF-8 text (names it and the place); an end-of-document
/// token that the vocabulary lacks.
inline corpus_facts make_corpus(std::span<const std::string> paths, const tokenizer& words, const std::string& out,
                                const corpus_options& options = {}) {
    if (paths.empty()) fail(out, ": found no text file to make a corpus from, expected at least one");
    if (!(options.held_out >= 0 && options.held_out < 1))
        fail(out, ": found a held-out share of ", options.held_out, ", expected at least 0 and below 1");
    const auto end = options.end_of_document ? options.end_of_document : words.find("<｜end▁of▁sentence｜>");
    if (!end) fail(out, ": the tokenizer has no <｜end▁of▁sentence｜>, expected end_of_document in the options");

    std::vector<detail::text_document> documents;
    for (const std::string& path : paths) {
        const mapped_file file{path};
        const std::string_view text = detail::checked_text(file);
        documents.push_back({&path, 0, text.size(), detail::text_hash(text)});
        if (paths.size() == 1) detail::cut_alone(documents, text, options.held_out);
    }
    if (paths.size() > 1) detail::hold_out(documents, options.held_out);

    corpus_writer writer{words.vocab_size(), *end};
    corpus_facts facts;
    const auto workers = static_cast<std::size_t>(std::max(options.workers, 1));
    constexpr std::size_t most_at_once = 16
                                         << 20;  // of text: bounds what waits in memory between encoding and appending
    for (std::size_t first = 0, last = 0; first < documents.size(); first = last) {
        std::size_t size = documents[first].size;
        for (last = first + 1; last < documents.size() && size + documents[last].size <= most_at_once; ++last)
            size += documents[last].size;
        std::vector<std::vector<std::int32_t>> ids(last - first);
        detail::run_workers(ids.size(), workers, [&](std::size_t i) {
            const mapped_file file{*documents[first + i].path};
            const std::string_view text = detail::text_in(file, documents[first + i]);
            ids[i] = ids.size() == 1 ? words.encode(text, options.workers) : words.encode(text);
        });
        for (std::size_t i = 0; i < ids.size(); ++i) {
            const detail::text_document& document = documents[first + i];
            writer.add(ids[i], document.size, document.held_out);
            const auto tokens = static_cast<integer>(ids[i].size() + 1), bytes = static_cast<integer>(document.size);
            facts.documents += 1;
            facts.tokens += tokens;
            facts.text_bytes += bytes;
            if (!document.held_out) continue;
            facts.held_out_documents += 1;
            facts.held_out_tokens += tokens;
            facts.held_out_bytes += bytes;
        }
    }
    writer.write(out);
    return facts;
}

}  // namespace fathom
