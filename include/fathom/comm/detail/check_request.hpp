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

/// What an operation means to one other rank: the two sides of a collective must have the same in mind.
struct terms {
    operation kind = operation::barrier;
    element format = element::byte;
    reduction how = reduction::sum;
    integer root = 0;
    integer bytes = 0;
    integer sends = 0, expects = 0;  // of all_to_all: to the other rank, and from it
};
[[nodiscard]] inline terms terms_of(const request& what, integer peer) {
    const integer size = bytes_of(what.format);
    terms made{what.kind, what.format, what.how, what.root, what.count * size, 0, 0};
    if (what.kind == operation::all_to_all) {
        const auto entry = static_cast<std::size_t>(peer);
        made.bytes = 0;
        made.sends = (what.send_counts.empty() ? what.count : what.send_counts[entry]) * size;
        made.expects = (what.receive_counts.empty() ? what.count : what.receive_counts[entry]) * size;
    }
    return made;
}

/// What two ranks disagree on in what should be one collective, in words of either side.
struct disagreement {
    bool found = false;
    std::string first{}, second{};
    explicit operator bool() const { return found; }
};
[[nodiscard]] inline disagreement disagreement_of(const terms& a, const terms& b) {
    const auto sides = [](const char* word, const auto& first, const auto& second, const char* unit = "") {
        return disagreement{true, text_of(" and ", word, first, unit), text_of(" and ", word, second, unit)};
    };
    const auto word = [](reduction how) { return how == reduction::sum ? "sum" : "maximum"; };
    if (a.kind != b.kind) return {true, {}, {}};  // their names say it
    if (a.format != b.format) return sides("has ", name_of(a.format), name_of(b.format));
    if (a.how != b.how) return sides("asks for the ", word(a.how), word(b.how));
    if (a.root != b.root) return sides("has root ", a.root, b.root);
    if (a.bytes != b.bytes) return sides("has ", a.bytes, b.bytes, " bytes");
    if (a.sends != b.expects)
        return {true, text_of(" and sends ", a.sends, " bytes"), text_of(" and expects ", b.expects, " bytes")};
    if (a.expects != b.sends)
        return {true, text_of(" and expects ", a.expects, " bytes"), text_of(" and sends ", b.sends, " bytes")};
    return {};
}

/// The sentence on two ranks that disagree; operations as `described`.
[[nodiscard]] inline std::string disagreement_text(const disagreement& found, integer rank,
                                                   const std::string& operation, integer other,
                                                   const std::string& others) {
    return text_of("ranks disagree: rank ", rank, " is in ", operation, found.first, ", rank ", other, " is in ",
                   others, found.second);
}

}  // namespace fathom::comm::detail
