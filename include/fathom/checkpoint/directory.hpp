// A run saves several files that belong together, and a kill or a full disk at any moment must leave the save before it
// whole: so a folder is filled under another name, sealed with a list of its files, and put in place by one rename.
#pragma once

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "fathom/checkpoint/checksum.hpp"
#include "fathom/core/error.hpp"
#include "fathom/core/file.hpp"
#include "fathom/core/function_ref.hpp"
#include "fathom/core/json.hpp"

namespace fathom::checkpoint {

/// A file that its writer has brought to disk and summed up.
struct sealed_member {
    std::string name;
    std::uint64_t bytes = 0, checksum = 0;
};

namespace detail {

using fathom::detail::before;
using fathom::detail::folder_of;
using fathom::detail::sync_folder;

inline void check(bool done, const std::string& path, std::string_view what) {
    if (!done) fail(path, ": cannot be ", what, ": ", std::string_view{std::strerror(errno)});
}

[[nodiscard]] inline bool is_folder(const std::string& path) {
    struct stat facts {};
    return ::lstat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

/// Sorted; none for a folder that is missing.
[[nodiscard]] inline std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    DIR* open = ::opendir(folder.c_str());
    check(open || errno == ENOENT, folder, "listed");
    if (!open) return names;
    while (const dirent* entry = ::readdir(open))
        if (const std::string_view name = entry->d_name; name != "." && name != "..") names.emplace_back(name);
    ::closedir(open);
    std::sort(names.begin(), names.end());
    return names;
}

inline void make_folders(const std::string& path, file_hook hook) {
    if (path.empty() || is_folder(path)) return;
    if (const std::string parent = folder_of(path); parent != path) make_folders(parent, hook);
    before(hook, "make", path);
    if (::mkdir(path.c_str(), 0777) == 0) return;
    const int reason = errno;
    struct stat facts {};
    const bool links_to_folder = ::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
    errno = reason;
    check(links_to_folder, path, "made");
}

inline void remove_tree(const std::string& path, file_hook hook) {
    if (is_folder(path)) {
        for (const std::string& name : names_in(path)) remove_tree(path + '/' + name, hook);
        before(hook, "remove", path);
        check(::rmdir(path.c_str()) == 0, path, "removed");
    } else {
        before(hook, "remove", path);
        check(::unlink(path.c_str()) == 0 || errno == ENOENT, path, "removed");
    }
}

[[nodiscard]] inline std::string hexadecimal(std::uint64_t number) {
    char digits[20];
    return {digits, static_cast<std::size_t>(std::snprintf(digits, sizeof digits, "%016jx", std::uintmax_t{number}))};
}

/// Lists the files of a folder, with sizes and checksums, in a last file `complete`. Those that are known are on disk
/// already, as their writers say.
inline void seal(const std::string& folder, const std::vector<sealed_member>& known, file_hook hook) {
    json::array members;
    for (const std::string& name : names_in(folder)) {
        const auto same = [&](const sealed_member& member) { return member.name == name; };
        if (const auto found = std::find_if(known.begin(), known.end(), same); found != known.end()) {
            members.push_back(
                json::object{{"name", name}, {"bytes", found->bytes}, {"checksum", hexadecimal(found->checksum)}});
            continue;
        }
        const mapped_file member{folder + '/' + name};
        before(hook, "sync", member.path());
        const int file = ::open(member.path().c_str(), O_RDONLY | O_CLOEXEC);
        const bool synced = file >= 0 && ::fsync(file) == 0;
        if (file >= 0) ::close(file);
        check(synced, member.path(), "synchronised");
        members.push_back(json::object{
            {"name", name}, {"bytes", member.data().size()}, {"checksum", hexadecimal(checksum(member.data()))}});
    }
    write_atomically(folder + "/complete", json::write(json::object{{"members", std::move(members)}}, 2) + '\n', hook);
}

/// The name under which a folder is filled.
[[nodiscard]] inline std::string partial_of(std::string path) {
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    return path + ".partial";
}

/// A folder may be replaced if all that it holds was saved there.
inline void check_replaceable(const std::string& path) {
    std::vector<std::string> foreign = names_in(path);
    if (foreign.empty()) return;
    std::vector<std::string> ours{"complete"};
    if (std::binary_search(foreign.begin(), foreign.end(), "complete")) {
        const json::value list = json::parse_file(path + "/complete");
        for (const json::value& member : list.at("members").items()) ours.push_back(member.at("name").as_string());
    }
    for (const std::string& name : foreign)
        if (std::find(ours.begin(), ours.end(), name) == ours.end())
            fail(path, ": found ", name,
                 ", which no save wrote, expected a folder to make or to replace; nothing was changed");
}

}  // namespace detail

/// Writes into the folder that it is given; may give members that it knows.
using fill_folder = function_ref<std::vector<sealed_member>(const std::string&)>;

/// Makes the folder `path` out of what `fill(folder)` writes into the folder it is given: whole or not at all, and in
/// exchange for one that was saved there before. A file `complete` lists the members with sizes and checksums; `fill`
/// may give those that it knows, as a vector of sealed_member. A killed save leaves `path`.partial, which the next one
/// clears. Errors: those of `fill`; a folder with files of somebody
/// else; every refusal of the system, with path and reason. What was there before an error stays.
inline void write_directory(std::string path, const fill_folder& fill, file_hook hook = nullptr) {
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    const std::string partial = detail::partial_of(path), parent = detail::folder_of(path);
    const bool replaces = ::access(path.c_str(), F_OK) == 0;
    if (replaces) detail::check_replaceable(path);
    if (::access(partial.c_str(), F_OK) == 0) detail::remove_tree(partial, hook);
    detail::make_folders(partial, hook);
    try {
        detail::seal(partial, fill(partial), hook);
        detail::before(hook, "rename", path);
        const int done = replaces ? ::renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE)
                                  : ::rename(partial.c_str(), path.c_str());
        detail::check(done == 0, path, replaces ? "replaced in one step" : "put in place");
        detail::sync_folder(parent, hook);
    } catch (...) {
        // The first error is the one to report.
        try {
            detail::remove_tree(partial, nullptr);
        } catch (const error&) {
        }
        throw;
    }
    if (replaces) detail::remove_tree(partial, hook);
}

/// Verifies a folder that `write_directory` made, or every `of`-th of its members from `first` on: many can share the
/// work. Errors: no `complete`, a member that is missing, of another size or with another checksum; each names the
/// file, found and expected.
inline void check_directory(const std::string& path, std::size_t first = 0, std::size_t of = 1) {
    const json::value list = json::parse_file(path + "/complete");
    const json::array& members = list.at("members").items();
    for (std::size_t i = first; i < members.size(); i += of) {
        const json::value& member = members[i];
        const std::string& name = member.at("name").as_string();
        if (name.find('/') != name.npos) fail(member.place(), "found the member \"", name, "\", expected a plain name");
        const mapped_file file{path + '/' + name};
        if (const auto bytes = member.at("bytes").as_int(); static_cast<std::size_t>(bytes) != file.data().size())
            fail(file.path(), ": found ", file.data().size(), " bytes, expected ", bytes);
        const std::string found = detail::hexadecimal(checksum(file.data()));
        if (const std::string& expected = member.at("checksum").as_string(); found != expected)
            fail(file.path(), ": found the checksum ", found, ", expected ", expected);
    }
}

/// One save of a run.
struct saved_step {
    std::string path;
    std::int64_t step = 0;
};

/// RUN/step_00000100
[[nodiscard]] inline std::string step_path(const std::string& run, std::int64_t step) {
    char name[32];
    std::snprintf(name, sizeof name, "/step_%08jd", std::intmax_t{step});
    return run + name;
}

/// The saves of a run that have been sealed, the oldest first; none for a run that is missing.
[[nodiscard]] inline std::vector<saved_step> saved_steps(const std::string& run) {
    std::vector<saved_step> steps;
    for (const std::string& name : detail::names_in(run)) {
        saved_step step{run + '/' + name, 0};
        const char* end = name.data() + name.size();
        if (name.starts_with("step_") && std::from_chars(name.data() + 5, end, step.step).ptr == end &&
            step.step >= 0 && step_path(run, step.step) == step.path &&
            ::access((step.path + "/complete").c_str(), F_OK) == 0)
            steps.push_back(std::move(step));
    }
    std::sort(steps.begin(), steps.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
    return steps;
}

/// The last save of a run whose every file is as it was written, or nothing. Where a later one is damaged, `skipped`
/// gets a line that says how.
[[nodiscard]] inline std::optional<saved_step> latest_complete(const std::string& run, std::string* skipped = nullptr) {
    auto steps = saved_steps(run);
    for (; !steps.empty(); steps.pop_back()) {
        try {
            check_directory(steps.back().path);
            return steps.back();
        } catch (const error& reason) {
            if (skipped) *skipped += text_of(std::string_view{reason.what()}, '\n');
        }
    }
    return std::nullopt;
}

/// Saves a step of a run through `write_directory`, clears what killed saves left, and then removes all but the last
/// `keep` saves (the new one always stays). One process saves a run at a time. Errors: those of `write_directory`.
inline void save_step(const std::string& run, std::int64_t step, std::size_t keep, const fill_folder& fill,
                      file_hook hook = nullptr) {
    if (step < 0 || keep == 0)
        fail(run, ": found step ", step, " and ", keep, " saves to keep, expected 0 and 1 or more");
    for (const std::string& name : detail::names_in(run))
        if (name.starts_with("step_") && name.ends_with(".partial")) detail::remove_tree(run + '/' + name, hook);
    write_directory(step_path(run, step), fill, hook);
    auto old = saved_steps(run);
    std::erase_if(old, [step](const saved_step& save) { return save.step == step; });
    for (std::size_t i = 0; i + keep <= old.size(); ++i) {
        // Renamed first: a half removed save is never taken for one.
        const std::string doomed = old[i].path + ".partial";
        detail::before(hook, "rename", old[i].path);
        detail::check(::rename(old[i].path.c_str(), doomed.c_str()) == 0, old[i].path, "removed");
        detail::remove_tree(doomed, hook);
    }
}

}  // namespace fathom::checkpoint
