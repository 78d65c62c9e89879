// Added tokens such as <think> are found in the raw text before any pattern looks at it, the leftmost and longest
// first.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fathom::detail {

/// A set of strings with ids, searched together.
class added_tokens {
  public:
    struct match {
        std::size_t first = 0, last = 0;
        std::int32_t id = -1;
    };

    void add(std::string content, std::int32_t id) {
        if (content.empty()) return;
        starts_[static_cast<unsigned char>(content[0])] = true;
        sorted_.emplace_back(std::move(content), id);
    }
    /// To be called after the last `add`.
    void finish() { std::sort(sorted_.begin(), sorted_.end()); }

    [[nodiscard]] bool empty() const { return sorted_.empty(); }
    [[nodiscard]] const std::vector<std::pair<std::string, std::int32_t>>& all() const { return sorted_; }

    /// The first match in text[from, end), the longest of those that start there.
    [[nodiscard]] bool find(std::string_view text, std::size_t from, match& found) const {
        if (sorted_.empty()) return false;
        for (std::size_t at = from; at < text.size(); ++at) {
            if (!starts_[static_cast<unsigned char>(text[at])]) continue;
            if (longest_at(text, at, found)) return true;
        }
        return false;
    }

  private:
    [[nodiscard]] bool longest_at(std::string_view text, std::size_t at, match& found) const {
        bool any = false;
        auto low = sorted_.begin(), high = sorted_.end();
        for (std::size_t depth = 0; at + depth < text.size(); ++depth) {
            const auto byte = [depth](const auto& token) {
                return token.first.size() > depth ? static_cast<unsigned char>(token.first[depth]) : -1;
            };
            const int wanted = static_cast<unsigned char>(text[at + depth]);
            low = std::partition_point(low, high, [&](const auto& token) { return byte(token) < wanted; });
            high = std::partition_point(low, high, [&](const auto& token) { return byte(token) == wanted; });
            if (low == high) break;
            if (low->first.size() == depth + 1) {
                found = {at, at + depth + 1, low->second};
                any = true;
            }
        }
        return any;
    }

    std::vector<std::pair<std::string, std::int32_t>> sorted_;
    std::array<bool, 256> starts_{};
};

}  // namespace fathom::detail
