// The order of training data is a function of seed and place alone: a run that resumes, or that is spread over another
// number of ranks, sees the very same batches.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "fathom/core/bytes.hpp"
#include "fathom/core/error.hpp"
#include "fathom/core/random_stream.hpp"
#include "fathom/data/batch.hpp"
#include "fathom/data/corpus.hpp"

namespace fathom {

/// Batches from a corpus, which must outlive it. In each epoch the training documents follow one another in an order of
/// their own, and every `length` tokens of that stream are a sequence; what is left at its end, less than a sequence,
/// is left out of that epoch. Sequences are taken from all over the stream in turn, so that those of a batch are of
/// different documents.
class loader {
  public:
    struct options {
        integer length = 0;  // tokens of a sequence
        std::uint64_t seed = 0;
        /// Off: positions restart and labels are ignored at a document's end. On: a sequence is one stretch of text.
        bool across_documents = false;
    };
    /// A place in the data: all that a checkpoint has to keep of a loader.
    struct state {
        std::int64_t epoch = 0;
        std::int64_t sequence = 0;  // the next one, counted from the epoch's start

        friend bool operator==(const state&, const state&) = default;
    };

    /// Errors: a length below 1, training documents that do not fill one sequence.
    loader(const corpus& from, options chosen) : corpus_{&from}, options_{chosen} {
        if (chosen.length < 1)
            fail(from.path(), ": found a sequence length of ", chosen.length, ", expected at least 1");
        for (integer i = 0; i < from.documents(); ++i) {
            const corpus::document document = from[i];
            auto& side = document.held_out ? held_out_ : training_;
            side.documents.push_back(i);
            if (document.held_out) held_out_bytes_ += document.text_bytes;
            side.ends.push_back(side.tokens() + document.tokens);
        }
        if (training_.tokens() < chosen.length)
            fail(from.path(), ": found ", training_.tokens(), " tokens for training, expected at least a sequence of ",
                 chosen.length);
        stride_ = stride_over(sequences_per_epoch());
    }

    [[nodiscard]] integer sequences_per_epoch() const { return training_.tokens() / options_.length; }
    [[nodiscard]] state where() const { return state_; }

    /// Goes to a place. Errors: a place that this corpus and sequence length do not have.
    void go_to(state place) {
        if (place.epoch < 0 || place.sequence < 0 || place.sequence >= sequences_per_epoch())
            fail(corpus_->path(), ": found epoch ", place.epoch, " and sequence ", place.sequence,
                 " to go on from, expected a sequence from 0 to ", sequences_per_epoch() - 1,
                 "; was the corpus or the sequence length changed?");
        state_ = place;
    }

    /// The next `sequences` sequences; moves on behind them.
    [[nodiscard]] batch next(integer sequences) {
        batch made = peek(0, sequences);
        advance(sequences);
        return made;
    }

    /// Sequences [first, first + count) from here on, without moving: what one of several ranks reads of a step, which
    /// all then `advance` by the whole of it.
    [[nodiscard]] batch peek(integer first, integer count) {
        batch made = empty(count);
        for (integer i = 0; i < count; ++i) {
            const state at = after(first + i);
            shuffle(at.epoch);
            fill(training_, place(at.sequence), i, made);
        }
        return made;
    }

    /// The labels that are not ignored in the next `sequences` sequences, without reading them: what the losses and
    /// gradients of all ranks are divided by.
    [[nodiscard]] integer targets_ahead(integer sequences) {
        integer count = sequences * options_.length;
        for (integer i = 0; i < sequences; ++i) {
            const state at = after(i);
            shuffle(at.epoch);
            const integer first = place(at.sequence) * options_.length, last = first + options_.length;
            const auto& ends = training_.ends;
            const auto past = [&](integer token) {
                return std::upper_bound(ends.begin(), ends.end(), token) - ends.begin();
            };
            count -= options_.across_documents ? last == training_.tokens() : past(last) - past(first);
        }
        return count;
    }

    void advance(integer sequences) { state_ = after(sequences); }

    /// The held-out documents in the order of the corpus; the last sequence may end in ignored padding.
    [[nodiscard]] integer held_out_sequences() const { return pieces(held_out_.tokens(), options_.length); }
    /// Their text in bytes.
    [[nodiscard]] integer held_out_bytes() const { return held_out_bytes_; }
    /// Sequences [first, first + count) of them. Errors: a range beyond held_out_sequences().
    [[nodiscard]] batch held_out(integer first, integer count) const {
        if (first < 0 || count < 0 || first > held_out_sequences() - count)
            fail(corpus_->path(), ": found held-out sequences ", first, " to ", first + count,
                 " asked for, expected within ", held_out_sequences());
        batch made = empty(count);
        for (integer i = 0; i < count; ++i) fill(held_out_, first + i, i, made);
        return made;
    }

  private:
    /// Documents one after another.
    struct stream {
        std::vector<integer> documents;
        std::vector<integer> ends;  // ends[i]: tokens of documents 0 to i
        [[nodiscard]] integer tokens() const { return ends.empty() ? 0 : ends.back(); }
    };

    [[nodiscard]] state after(integer sequences) const {
        const integer ahead = state_.sequence + sequences;
        return {state_.epoch + ahead / sequences_per_epoch(), ahead % sequences_per_epoch()};
    }

    /// Where in an epoch's stream its n-th sequence lies: a golden section of the stream behind the one before, which
    /// is as evenly spread as can be.
    [[nodiscard]] integer place(integer sequence) const { return sequence * stride_ % sequences_per_epoch(); }
    [[nodiscard]] static integer stride_over(integer sequences) {
        constexpr integer most_product = integer{1} << 62;
        auto stride =
            static_cast<integer>(0.6180339887 * static_cast<double>(std::min(sequences, most_product / sequences)));
        while (std::gcd(stride, sequences) != 1) ++stride;
        return stride;
    }

    /// Puts the training documents into the epoch's order: sorted by a random number of epoch and document.
    void shuffle(std::int64_t epoch) {
        if (epoch == shuffled_) return;
        constexpr std::uint64_t order_of_documents = std::uint64_t{0x646F6373} << 32;  // a stream of nobody else's
        const random_stream numbers{options_.seed, order_of_documents + static_cast<std::uint64_t>(epoch)};
        std::vector<std::pair<std::array<std::uint32_t, 4>, integer>> keyed;
        keyed.reserve(training_.documents.size());
        for (const integer i : training_.documents) keyed.emplace_back(numbers.words(static_cast<std::uint64_t>(i)), i);
        std::sort(keyed.begin(), keyed.end());
        integer end = 0;
        for (std::size_t i = 0; i < keyed.size(); ++i) {
            training_.documents[i] = keyed[i].second;
            training_.ends[i] = end += (*corpus_)[keyed[i].second].tokens;
        }
        shuffled_ = epoch;
    }

    [[nodiscard]] batch empty(integer sequences) const {
        batch made;
        made.sequences = sequences;
        made.length = options_.length;
        const auto size = static_cast<std::size_t>(sequences * made.length);
        made.tokens.assign(size, corpus_->end_of_document());
        made.labels.assign(size, -100);
        made.positions.assign(size, 0);
        made.starts.assign(size, 0);
        return made;
    }

    /// Sequence `sequence` of the stream becomes sequence `row` of the batch.
    void fill(const stream& from, integer sequence, integer row, batch& made) const {
        const integer length = options_.length, first = sequence * length;
        const auto at = static_cast<std::size_t>(row * length);
        // One token more than the sequence: the last label.
        std::vector<std::int32_t> tokens(static_cast<std::size_t>(std::min(length + 1, from.tokens() - first)));
        std::vector<integer> starts(tokens.size());
        auto document =
            static_cast<std::size_t>(std::upper_bound(from.ends.begin(), from.ends.end(), first) - from.ends.begin());
        for (std::size_t filled = 0; filled < tokens.size(); ++document) {
            const corpus::document facts = (*corpus_)[from.documents[document]];
            const integer begins = from.ends[document] - facts.tokens,
                          skip = first + static_cast<integer>(filled) - begins;
            const std::size_t count = std::min(static_cast<std::size_t>(facts.tokens - skip), tokens.size() - filled);
            corpus_->read(facts.first + skip, std::span{tokens}.subspan(filled, count));
            std::fill_n(starts.begin() + static_cast<std::ptrdiff_t>(filled), count, static_cast<integer>(filled));
            filled += count;
        }
        const auto size = static_cast<std::size_t>(length);
        for (std::size_t i = 0; i < size; ++i) {
            const bool inside = i < tokens.size();
            const integer start = options_.across_documents ? 0
                                  : inside                  ? starts[i]
                                                            : static_cast<integer>(tokens.size());
            made.starts[at + i] = static_cast<std::int32_t>(start);
            made.positions[at + i] = static_cast<std::int32_t>(static_cast<integer>(i) - start);
            if (inside) made.tokens[at + i] = tokens[i];
            if (i + 1 >= tokens.size() || (!options_.across_documents && starts[i + 1] != starts[i])) continue;
            made.labels[at + i] = tokens[i + 1];
            ++made.targets;
        }
    }

    const corpus* corpus_;
    options options_;
    state state_;
    stream training_, held_out_;
    integer held_out_bytes_ = 0, stride_ = 1;
    std::int64_t shuffled_ = -1;
};

}  // namespace fathom
