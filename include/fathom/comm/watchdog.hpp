// A job that hangs says who waits for whom, and ends: the limit of a wait, and the text of the report.
#pragma once

#include <fathom/core/bytes.hpp>
#include <fathom/core/error.hpp>
#include <span>
#include <string>

namespace fathom::comm {

/// What a rank was seen to do when a wait came to its limit.
struct rank_standing {
    enum class state { computes, waits, ended, stalls };
    integer rank = 0;
    state doing = state::computes;
    std::string operation;  // what it waits in, or was last in; empty if there was none
};

/// The longest that a rank waits for one operation. Long by default: another rank may be saving or compiling.
struct watchdog {
    double limit = 600;  // seconds
    double start = 120;  // the longest that processes wait for each other before their first operation

    /// The beginning of a report on an operation that came to the limit.
    [[nodiscard]] std::string overdue(const std::string& operation) const {
        return text_of(operation, " was not finished within ", limit, " s");
    }
    /// What is wrong, with those that never came to the operation; then what each rank does.
    [[nodiscard]] static std::string report(const std::string& wrong, std::span<const integer> absent,
                                            std::span<const rank_standing> ranks) {
        std::string text = wrong;
        if (!absent.empty()) text += absent.size() == 1 ? ": rank" : ": ranks";
        for (const integer rank : absent) text += text_of(' ', rank);
        text += absent.empty() ? ": all ranks came, not all moved their data" : " never came";
        for (const rank_standing& seen : ranks) {
            text += text_of("; rank ", seen.rank);
            if (seen.doing == rank_standing::state::waits) {
                text += " waits in " + seen.operation;
                continue;
            }
            if (seen.doing == rank_standing::state::stalls) {
                text += " came and stopped";
                continue;
            }
            text += seen.doing == rank_standing::state::ended ? " has ended" : " is not in an operation";
            text += seen.operation.empty() ? ", never was in one" : ", last in " + seen.operation;
        }
        return text;
    }
};

}  // namespace fathom::comm
