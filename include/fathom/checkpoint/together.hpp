// A folder that many ranks fill must be there whole or not at all, too: each writes a file of its own, and one puts the
// folder in place when all have.
#pragma once

#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "fathom/checkpoint/directory.hpp"
#include "fathom/comm/all_gather.hpp"
#include "fathom/comm/all_reduce.hpp"
#include "fathom/comm/broadcast.hpp"
#include "fathom/comm/link.hpp"

namespace fathom::checkpoint {

/// The name of a rank's file: "state.safetensors" of one, "state-00002-of-00004.safetensors" of several.
[[nodiscard]] inline std::string file_of_rank(const std::string& stem, integer rank, integer ranks) {
    char number[32] = "";
    if (ranks > 1)
        std::snprintf(number, sizeof number, "-%05d-of-%05d", static_cast<int>(rank) + 1, static_cast<int>(ranks));
    return stem + number + ".safetensors";
}

namespace detail {

/// Whether any rank failed: all learn it.
inline bool any_failed(const comm::link& ranks, bool here, const char* label) {
    std::int32_t failed = here ? 1 : 0;
    ranks.run(comm::all_reduce(&failed, 1, comm::reduction::max).from(label));
    return failed != 0;
}

/// Calls fill(path) for this rank's file and gives the facts about those of all ranks.
inline std::vector<sealed_member> fill_together(const comm::link& ranks, const std::string& folder,
                                                const std::string& stem,
                                                const function_ref<void(const std::string&)>& fill) {
    const integer count = ranks.size();
    std::int64_t mine[2] = {-1, 0};
    std::vector<std::int64_t> all(static_cast<std::size_t>(2 * count));
    std::exception_ptr problem;
    try {
        const std::string path = folder + '/' + file_of_rank(stem, ranks.rank(), count);
        fill(path);
        const mapped_file written{path};
        mine[0] = static_cast<std::int64_t>(written.data().size());
        mine[1] = static_cast<std::int64_t>(checksum(written.data()));
    } catch (const std::exception&) {
        problem = std::current_exception();
    }
    if (count > 1)
        ranks.run(comm::all_gather(mine, all.data(), 2).from("files of a save"));
    else
        all.assign(mine, mine + 2);
    if (problem) std::rethrow_exception(problem);
    std::vector<sealed_member> members;
    for (integer rank = 0; rank < count; ++rank) {
        const std::int64_t* facts = all.data() + 2 * rank;
        if (facts[0] < 0) fail(folder, ": rank ", rank, " could not write its file; nothing was saved");
        members.push_back({file_of_rank(stem, rank, count), static_cast<std::uint64_t>(facts[0]),
                           static_cast<std::uint64_t>(facts[1])});
    }
    return members;
}

}  // namespace detail

/// Makes a folder that all ranks see: each calls fill(path), which writes its file there. On rank 0, make(into) is
/// write_directory or save_step, to call into(folder), and finish(folder, members) gives the members that are known or
/// clears what is not to stay. `folder` is the one that is filled. All ranks call it and return when the folder is in
/// place. Errors: where a rank meets one, it throws that, and all others one that says so; what was there before stays.
inline void write_together(
    const comm::link& ranks, const std::string& folder, const std::string& stem,
    const function_ref<void(const fill_folder&)>& make, const function_ref<void(const std::string&)>& fill,
    const function_ref<std::vector<sealed_member>(const std::string&, std::vector<sealed_member>)>& finish) {
    if (ranks.rank() != 0) {
        if (detail::any_failed(ranks, false, "folder of a save"))
            fail(folder, ": rank 0 could not make it; nothing was saved");
        detail::fill_together(ranks, folder, stem, fill);
        if (detail::any_failed(ranks, false, "save")) fail(folder, ": rank 0 could not finish it; nothing was saved");
        return;
    }
    enum { making, filling, finishing } now = making;
    try {
        make([&](const std::string& into) {
            now = filling;
            detail::any_failed(ranks, false, "folder of a save");
            auto members = detail::fill_together(ranks, into, stem, fill);
            now = finishing;
            return finish(into, std::move(members));
        });
    } catch (const std::exception&) {
        if (now != filling) detail::any_failed(ranks, true, now == making ? "folder of a save" : "save");
        throw;
    }
    detail::any_failed(ranks, false, "save");
}

/// The same as latest_complete(run) over ranks that all see the folder: each verifies its share of the files. All call
/// it together and get the same.
[[nodiscard]] inline std::optional<saved_step> latest_complete(const comm::link& ranks, const std::string& run) {
    std::vector<saved_step> steps;
    if (ranks.rank() == 0) steps = saved_steps(run);
    for (;;) {
        std::int64_t step = steps.empty() ? -1 : steps.back().step;
        ranks.run(comm::broadcast(&step, 1).from("last save"));
        if (step < 0) return std::nullopt;
        const std::string path = step_path(run, step);
        bool damaged = false;
        try {
            check_directory(path, static_cast<std::size_t>(ranks.rank()), static_cast<std::size_t>(ranks.size()));
        } catch (const error&) {
            damaged = true;
        }
        if (!detail::any_failed(ranks, damaged, "files of a save")) return saved_step{path, step};
        if (!steps.empty()) steps.pop_back();
    }
}

}  // namespace fathom::checkpoint
