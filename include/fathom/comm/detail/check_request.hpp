// What must hold of a request before any rank touches a buffer, and how one is called in messages.
#pragma once

#include <cstdint>
#include <fathom/comm/request.hpp>
#include <fathom/core/error.hpp>
#include <string>

namespace fathom::comm::detail {

/// `all_reduce #5 of tp (gradients)`.
[[nodiscard]] inline std::string described(operation kind, std::uint64_t sequence, const char* communicator,
                                           const char* label) {
    std::string text = text_of(name_of(kind), " #", sequence, " of ", communicator);
    if (*label != '\0') text += text_of(" (", label, ')');
    return text;
}

/// Throws unless the request fits a communicator of so many ranks.
inline void check_request(const request& what, integer ranks, const char* communicator) {
    const auto wrong = [&](const auto&... parts) {
        fail(name_of(what.kind), " of ", communicator, *what.label != '\0' ? " at " : "", what.label, ": ", parts...);
    };
    if (what.count < 0) wrong("a count of ", what.count, " elements, expected none or more");
    if (what.kind == operation::broadcast && (what.root < 0 || what.root >= ranks))
        wrong("the root is rank ", what.root, ", expected one below ", ranks);
    if (what.kind == operation::all_to_all && !what.send_counts.empty()) {
        for (const auto& numbers : {what.send_counts, what.send_offsets, what.receive_counts, what.receive_offsets}) {
            if (static_cast<integer>(numbers.size()) != ranks)
                wrong("a list of ", numbers.size(), " counts or offsets, expected one entry for each of ", ranks,
                      " ranks");
            for (const integer number : numbers)
                if (number < 0) wrong("a count or offset of ", number, ", expected none below zero");
        }
    }
    for (const message& m : what.messages) {
        if (m.peer < 0 || m.peer >= ranks) wrong("a message for rank ", m.peer, ", expected one below ", ranks);
        if (m.count < 0) wrong("a message of ", m.count, " elements, expected none or more");
    }
}

/// What two ranks disagree on in what should be one collective: empty, or the two sides in words.
struct disagreement {
    std::string first, second;
    explicit operator bool() const { return !first.empty(); }
};
[[nodiscard]] inline disagreement disagreement_of(const request& a, integer a_rank, const request& b, integer b_rank) {
    if (a.kind != b.kind) return {name_of(a.kind), name_of(b.kind)};
    if (a.kind == operation::barrier) return {};
    if (a.format != b.format) return {text_of("has ", name_of(a.format)), text_of("has ", name_of(b.format))};
    const bool reduces = a.kind == operation::all_reduce || a.kind == operation::reduce_scatter;
    if (reduces && a.how != b.how) {
        const auto word = [](reduction how) {
            return how == reduction::sum ? "asks for the sum" : "asks for the maximum";
        };
        return {word(a.how), word(b.how)};
    }
    if (a.kind == operation::broadcast && a.root != b.root)
        return {text_of("has root ", a.root), text_of("has root ", b.root)};
    const auto sent = [](const request& what, integer to) {
        return what.send_counts.empty() ? what.count : what.send_counts[static_cast<std::size_t>(to)];
    };
    const auto expected = [](const request& what, integer by) {
        return what.receive_counts.empty() ? what.count : what.receive_counts[static_cast<std::size_t>(by)];
    };
    const integer size = bytes_of(a.format);
    if (a.kind == operation::all_to_all) {
        if (sent(a, b_rank) != expected(b, a_rank))
            return {text_of("sends ", sent(a, b_rank) * size, " bytes"),
                    text_of("expects ", expected(b, a_rank) * size, " bytes")};
        if (sent(b, a_rank) != expected(a, b_rank))
            return {text_of("expects ", expected(a, b_rank) * size, " bytes"),
                    text_of("sends ", sent(b, a_rank) * size, " bytes")};
        return {};
    }
    if (a.count != b.count)
        return {text_of("has ", a.count * size, " bytes"), text_of("has ", b.count * size, " bytes")};
    return {};
}

}  // namespace fathom::comm::detail
