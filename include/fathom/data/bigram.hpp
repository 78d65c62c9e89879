// The least that a language model has to beat: the frequency of a token after the one before it, mixed with its
// frequency anywhere.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "fathom/core/bytes.hpp"
#include "fathom/data/batch.hpp"
#include "fathom/data/corpus.hpp"

namespace fathom {

/// p(b | a) = w count(a, b) / count(a) + (1 - w) (count(b) + 1) / (tokens + vocabulary), with a weight w for each power
/// of two in count(a) (Jelinek and Mercer 1980). The weights maximise the likelihood of a tenth of the training
/// documents under the counts of the others; the counts are then those of all of them.
class bigram {
  public:
    /// Learns from the documents of a corpus that are not held out.
    explicit bigram(const corpus& text) : vocab_size_(text.vocab_size()) {
        integer documents = 0;
        for (integer i = 0; i < text.documents(); ++i) documents += text[i].held_out ? 0 : 1;
        const integer cuts = documents < 10 ? 10 : 1;  // few documents are cut in pieces
        std::vector<stretch> all, most, tenth;
        for (integer i = 0; i < text.documents(); ++i) {
            const corpus::document document = text[i];
            for (integer cut = 0; cut < cuts && !document.held_out; ++cut) {
                const integer first = document.tokens * cut / cuts, last = document.tokens * (cut + 1) / cuts;
                stretch& made = all.emplace_back(static_cast<std::size_t>(last - first));
                text.read(document.first + first, made);
                (all.size() % 10 == 0 ? tenth : most).push_back(made);
            }
        }
        count(most);
        tune(tenth);
        count(all);
    }

    [[nodiscard]] double probability(std::int32_t before, std::int32_t token) const {
        const integer context = row_size(before);
        const double weight = context > 0 ? weights_[bucket(context)] : 0;
        return weight * after(before, token) + (1 - weight) * anywhere(token);
    }

    /// The sum of -log p over the targets of a batch that count.
    [[nodiscard]] double loss(const batch& of) const {
        double sum = 0;
        for (std::size_t i = 0; i < of.tokens.size(); ++i)
            if (of.labels[i] >= 0) sum -= std::log(probability(of.tokens[i], of.labels[i]));
        return sum;
    }

  private:
    using stretch = std::vector<std::int32_t>;
    struct follower {
        std::int32_t token;
        std::int32_t count;
    };

    static std::size_t bucket(integer context) {
        return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(context)));
    }
    [[nodiscard]] integer row_size(std::int32_t before) const { return contexts_[static_cast<std::size_t>(before)]; }
    [[nodiscard]] double anywhere(std::int32_t token) const {
        return static_cast<double>(singles_[static_cast<std::size_t>(token)] + 1) /
               static_cast<double>(tokens_ + vocab_size_);
    }
    /// count(before, token) / count(before), which is not 0.
    [[nodiscard]] double after(std::int32_t before, std::int32_t token) const {
        const auto row = static_cast<std::size_t>(before);
        const auto last = followers_.begin() + rows_[row + 1];
        const auto found = std::lower_bound(followers_.begin() + rows_[row], last, token,
                                            [](const follower& f, std::int32_t id) { return f.token < id; });
        if (found == last || found->token != token) return 0;
        return static_cast<double>(found->count) / static_cast<double>(row_size(before));
    }

    void count(const std::vector<stretch>& text) {
        const auto vocab = static_cast<std::size_t>(vocab_size_);
        singles_.assign(vocab, 0);
        contexts_.assign(vocab, 0);
        tokens_ = 0;
        for (const stretch& s : text) {
            tokens_ += static_cast<integer>(s.size());
            for (const std::int32_t token : s) ++singles_[static_cast<std::size_t>(token)];
            for (std::size_t i = 1; i < s.size(); ++i) ++contexts_[static_cast<std::size_t>(s[i - 1])];
        }
        // What follows each token, sorted by that token, then counted row by row.
        std::vector<integer> next(vocab + 1, 0);
        for (std::size_t a = 0; a < vocab; ++a) next[a + 1] = next[a] + contexts_[a];
        std::vector<std::int32_t> pairs(static_cast<std::size_t>(next[vocab]));
        for (const stretch& s : text)
            for (std::size_t i = 1; i < s.size(); ++i)
                pairs[static_cast<std::size_t>(next[static_cast<std::size_t>(s[i - 1])]++)] = s[i];
        followers_.clear();
        rows_.assign(1, 0);
        for (std::size_t a = 0; a < vocab; ++a) {
            const auto first = pairs.begin() + (next[a] - contexts_[a]), last = pairs.begin() + next[a];
            std::sort(first, last);
            for (auto at = first; at != last;) {
                const auto end = std::upper_bound(at, last, *at);
                followers_.push_back({*at, static_cast<std::int32_t>(end - at)});
                at = end;
            }
            rows_.push_back(static_cast<std::ptrdiff_t>(followers_.size()));
        }
    }

    /// Expectation and maximisation, until the weights stand. A bucket that occurs in all text only takes the weight of
    /// the one below.
    void tune(const std::vector<stretch>& text) {
        std::array<std::vector<std::pair<double, double>>, buckets> seen;  // by bucket: p after, p anywhere
        for (const stretch& s : text)
            for (std::size_t i = 1; i < s.size(); ++i)
                if (const integer context = row_size(s[i - 1]); context > 0)
                    seen[bucket(context)].emplace_back(after(s[i - 1], s[i]), anywhere(s[i]));
        for (std::size_t b = 0; b < buckets; ++b) {
            double& weight = weights_[b] = b > 0 && seen[b].empty() ? weights_[b - 1] : 0.5;
            for (int round = 0; round < 50 && !seen[b].empty(); ++round) {
                double share = 0;
                for (const auto& [near, far] : seen[b]) share += weight * near / (weight * near + (1 - weight) * far);
                weight = std::min(share / static_cast<double>(seen[b].size()), 0.999);  // nothing is impossible
            }
        }
    }

    static constexpr std::size_t buckets = 64;
    integer vocab_size_, tokens_ = 0;
    std::vector<integer> singles_, contexts_;  // [vocab]: occurrences, and those with a token after them
    std::vector<follower> followers_;          // of token a: [rows_[a], rows_[a + 1]), sorted
    std::vector<std::ptrdiff_t> rows_;
    std::array<double, buckets> weights_{};
};

}  // namespace fathom
