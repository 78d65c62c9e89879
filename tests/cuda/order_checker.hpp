// Finds two accesses to the same memory, one of which writes, that nothing orders: vector clocks over everything that
// works by itself (streams, branches of graphs, threads of the host).
#pragma once

#include <algorithm>
#include <cstdint>
#include <fathom/core/error.hpp>
#include <fathom/device/cuda/access.hpp>
#include <iterator>
#include <map>
#include <string>
#include <vector>

namespace fathom::test {

class order_checker {
  public:
    /// How far one sees of each worker's work.
    using clock = std::vector<std::uint32_t>;

    /// One more worker, under a name for reports.
    int add(std::string name) {
        names_.push_back(std::move(name));
        seen_.emplace_back();
        return static_cast<int>(names_.size()) - 1;
    }
    [[nodiscard]] const clock& seen_by(int worker) const { return seen_[static_cast<std::size_t>(worker)]; }
    /// What the worker does from now on comes after what `point` sees.
    void join(int worker, const clock& point) { join(seen_[static_cast<std::size_t>(worker)], point); }
    static void join(clock& into, const clock& point) {
        if (into.size() < point.size()) into.resize(point.size());
        for (std::size_t n = 0; n < point.size(); ++n) into[n] = std::max(into[n], point[n]);
    }

    /// The worker's next piece of work touches memory, under a name that lives as long as the program.
    void touch(int worker, const char* what, const cuda::access* touched, std::size_t count) {
        clock& mine = seen_[static_cast<std::size_t>(worker)];
        if (mine.size() <= static_cast<std::size_t>(worker)) mine.resize(static_cast<std::size_t>(worker) + 1);
        const epoch now{worker, ++mine[static_cast<std::size_t>(worker)], what};
        for (std::size_t n = 0; n < count; ++n) {
            const cuda::access& one = touched[n];
            if (one.data == nullptr || one.rows <= 0 || one.bytes <= 0) continue;
            const auto first = reinterpret_cast<std::uintptr_t>(one.data);
            if (one.stride == one.bytes || one.rows == 1) {
                touch(now, first, first + static_cast<std::uintptr_t>(one.rows * one.bytes), one.writes);
                continue;
            }
            for (integer row = 0; row < one.rows; ++row) {
                const std::uintptr_t at = first + static_cast<std::uintptr_t>(row * one.stride);
                touch(now, at, at + static_cast<std::uintptr_t>(one.bytes), one.writes);
            }
        }
    }
    /// Nobody has touched this memory yet: it was taken or given back.
    void forget(const void* data, std::size_t bytes) {
        const auto first = reinterpret_cast<std::uintptr_t>(data);
        split(first);
        split(first + bytes);
        pieces_.erase(pieces_.lower_bound(first), pieces_.lower_bound(first + bytes));
    }

    /// What was found: the first of each pair of works.
    std::vector<std::string> faults;

  private:
    struct epoch {
        int worker = -1;
        std::uint32_t at = 0;
        const char* what = "";
    };
    /// Memory up to `end` with one history.
    struct piece {
        std::uintptr_t end;
        epoch written;
        std::vector<epoch> read;  // since, the last of each worker
    };

    /// Makes `at` a border between pieces.
    void split(std::uintptr_t at) {
        auto after = pieces_.upper_bound(at);
        if (after == pieces_.begin()) return;
        const auto here = std::prev(after);
        if (here->first == at || here->second.end <= at) return;
        piece rest = here->second;
        here->second.end = at;
        pieces_.emplace_hint(after, at, std::move(rest));
    }
    void touch(const epoch& now, std::uintptr_t first, std::uintptr_t end, bool writes) {
        split(first);
        split(end);
        for (std::uintptr_t at = first; at < end;) {
            auto next = pieces_.lower_bound(at);
            if (next == pieces_.end() || next->first != at) {
                const std::uintptr_t until = next == pieces_.end() ? end : std::min(end, next->first);
                next = pieces_.emplace_hint(next, at, piece{until, {}, {}});
            }
            touch(now, at, next->second, writes);
            at = next->second.end;
        }
    }
    void touch(const epoch& now, std::uintptr_t at, piece& memory, bool writes) {
        require_order(memory.written, now, at, memory, "writes", writes);
        if (!writes) {
            for (epoch& one : memory.read)
                if (one.worker == now.worker) {
                    one = now;
                    return;
                }
            memory.read.push_back(now);
            return;
        }
        for (const epoch& one : memory.read) require_order(one, now, at, memory, "reads", true);
        memory.read.clear();
        memory.written = now;
    }
    void require_order(const epoch& before, const epoch& now, std::uintptr_t at, const piece& memory, const char* did,
                       bool writes) {
        if (before.worker < 0) return;
        const clock& mine = seen_by(now.worker);
        if (const auto n = static_cast<std::size_t>(before.worker); n < mine.size() && before.at <= mine[n]) return;
        const std::string pair = text_of(now.what, " on ", name_of(now), writes ? " writes" : " reads", " what ",
                                         before.what, " on ", name_of(before), ' ', did, ", and nothing orders them");
        for (const std::string& known : faults)
            if (known.starts_with(pair)) return;
        faults.push_back(text_of(pair, ": ", memory.end - at, " bytes at ", at));
    }
    [[nodiscard]] const std::string& name_of(const epoch& of) const {
        return names_[static_cast<std::size_t>(of.worker)];
    }

    std::vector<std::string> names_;
    std::vector<clock> seen_;
    std::map<std::uintptr_t, piece> pieces_;  // by their first byte; they do not overlap
};

}  // namespace fathom::test
