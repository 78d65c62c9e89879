// Byte-pair encoding of one piece: the merge table, and the order in which merges happen.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "fathom/core/error.hpp"

namespace fathom::detail {

/// Which two tokens become which, and how early: an open-addressed table of pairs.
class merges {
  public:
    static constexpr std::uint32_t never = 0xFFFFFFFF;
    struct merge {
        std::uint64_t pair = ~std::uint64_t{0};
        std::uint32_t rank = never;
        std::int32_t into = -1;
    };

    explicit merges(std::size_t count) {
        std::size_t slots = 16;
        while (slots < 2 * count) slots *= 2;
        slots_.resize(slots);
    }

    /// A pair that is there already keeps the later rank, as in the reference.
    void add(std::int32_t left, std::int32_t right, std::uint32_t rank, std::int32_t into) {
        const std::uint64_t pair = pair_of(left, right);
        std::size_t at = slot_of(pair);
        while (slots_[at].rank != never && slots_[at].pair != pair) at = (at + 1) & (slots_.size() - 1);
        slots_[at] = {pair, rank, into};
    }

    [[nodiscard]] const merge* find(std::int32_t left, std::int32_t right) const {
        const std::uint64_t pair = pair_of(left, right);
        for (std::size_t at = slot_of(pair);; at = (at + 1) & (slots_.size() - 1)) {
            if (slots_[at].pair == pair) return &slots_[at];
            if (slots_[at].rank == never) return nullptr;
        }
    }

  private:
    static std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
        return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32) | static_cast<std::uint32_t>(right);
    }
    [[nodiscard]] std::size_t slot_of(std::uint64_t pair) const {
        pair *= 0x9E3779B97F4A7C15u;
        return static_cast<std::size_t>(pair ^ (pair >> 32)) & (slots_.size() - 1);
    }
    std::vector<merge> slots_;
};

/// Merges the tokens of one piece until none is left to merge: the lowest rank first, the leftmost among equals.
class merger {
  public:
    /// The tokens of `piece`, whose bytes start as byte_ids; valid until the next call.
    [[nodiscard]] const std::vector<std::int32_t>& operator()(std::string_view piece, const merges& table,
                                                              const std::array<std::int32_t, 256>& byte_ids) {
        if (piece.size() > 0x7FFFFFFF)
            fail("a piece of ", piece.size(), " bytes cannot be encoded; expected below 2^31");
        const auto count = static_cast<std::int32_t>(piece.size());
        symbols_.resize(piece.size());
        queue_.clear();
        for (std::int32_t i = 0; i < count; ++i) {
            const auto at = static_cast<std::size_t>(i);
            symbols_[at] = {byte_ids[static_cast<unsigned char>(piece[at])], i - 1, i + 1 < count ? i + 1 : -1};
            if (i > 0) propose(i - 1, i, table);
        }
        std::make_heap(queue_.begin(), queue_.end());
        while (!queue_.empty()) {
            std::pop_heap(queue_.begin(), queue_.end());
            const candidate best = queue_.back();
            queue_.pop_back();
            symbol& left = symbols_[static_cast<std::size_t>(best.at)];
            if (left.id < 0 || left.next < 0) continue;
            symbol& right = symbols_[static_cast<std::size_t>(left.next)];
            const merges::merge* now = table.find(left.id, right.id);
            if (!now || now->into != best.into) continue;  // one of the two has been merged meanwhile
            left.id = best.into;
            right.id = -1;
            left.next = right.next;
            if (left.next >= 0) {
                symbols_[static_cast<std::size_t>(left.next)].previous = best.at;
                if (propose(best.at, left.next, table)) std::push_heap(queue_.begin(), queue_.end());
            }
            if (left.previous >= 0 && propose(left.previous, best.at, table))
                std::push_heap(queue_.begin(), queue_.end());
        }
        ids_.clear();
        for (std::int32_t at = count > 0 ? 0 : -1; at >= 0; at = symbols_[static_cast<std::size_t>(at)].next)
            ids_.push_back(symbols_[static_cast<std::size_t>(at)].id);
        return ids_;
    }
    /// One token that needs no merging, as a result of the same kind.
    [[nodiscard]] const std::vector<std::int32_t>& whole(std::int32_t id) {
        ids_.assign(1, id);
        return ids_;
    }

  private:
    struct symbol {
        std::int32_t id, previous, next;
    };
    struct candidate {
        std::uint32_t rank;
        std::int32_t at, into;
        /// So that the heap's greatest is the first to merge.
        bool operator<(const candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
    };
    bool propose(std::int32_t left, std::int32_t right, const merges& table) {
        const merges::merge* found =
            table.find(symbols_[static_cast<std::size_t>(left)].id, symbols_[static_cast<std::size_t>(right)].id);
        if (found) queue_.push_back({found->rank, left, found->into});
        return found;
    }
    std::vector<symbol> symbols_;
    std::vector<candidate> queue_;
    std::vector<std::int32_t> ids_;
};

}  // namespace fathom::detail
