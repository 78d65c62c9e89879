// Ranks that fill a folder together: all of it is there or nothing, and where one rank fails, all know.
#include "fathom/checkpoint/together.hpp"

#include <doctest/doctest.h>

#include <fathom/comm.hpp>
#include <mutex>

#include "../scratch_folder.hpp"

namespace fathom {
namespace {

using namespace checkpoint;
using test::contents;
using test::message_of;
using test::scratch_folder;

constexpr integer ranks = 3;

/// What each rank throws. `failing` cannot write its file.
std::vector<std::string> save_together(const std::string& run, std::int64_t step, integer failing = -1,
                                       file_hook hook = nullptr) {
    std::vector<std::string> seen(ranks);
    comm::threads::run(ranks, [&](auto& mine) {
        const comm::link all{mine};
        seen[static_cast<std::size_t>(all.rank())] = message_of([&] {
            write_together(
                all, checkpoint::detail::partial_of(step_path(run, step)), "part",
                [&](const auto& fill) { save_step(run, step, 2, fill, hook); },
                [&](const std::string& path) {
                    if (all.rank() == failing) fail(path, ": full");
                    write_atomically(path, text_of("step ", step, " of rank ", all.rank()));
                },
                [](const std::string& into, std::vector<sealed_member> members) {
                    write_atomically(into + "/note", "all");
                    return members;
                });
        });
    });
    return seen;
}
std::optional<saved_step> latest(const std::string& run) {
    std::vector<std::optional<saved_step>> seen(ranks);
    comm::threads::run(ranks, [&](auto& mine) {
        seen[static_cast<std::size_t>(mine.rank())] = latest_complete(comm::link{mine}, run);
    });
    for (const auto& one : seen) CHECK(one.has_value() == seen[0].has_value());
    for (const auto& one : seen)
        if (one) CHECK(one->step == seen[0]->step);
    return seen[0];
}

}  // namespace

TEST_CASE("ranks fill a folder together, and each verifies a share of it") {
    const scratch_folder folder;
    const std::string run = folder / "run";
    CHECK_FALSE(latest(run).has_value());
    for (const std::string& error : save_together(run, 7)) CHECK(error == "no error");
    REQUIRE(latest(run).has_value());
    const std::string path = latest(run)->path;
    CHECK(path == run + "/step_00000007");
    CHECK(contents(path + "/part-00002-of-00003.safetensors") == "step 7 of rank 1");
    CHECK(contents(path + "/note") == "all");
    CHECK_NOTHROW(check_directory(path));
    for (const std::string& error : save_together(run, 9)) CHECK(error == "no error");
    CHECK(latest(run)->step == 9);
    // Whichever rank's file is damaged, all go back to the save before.
    for (const char* name : {"part-00001-of-00003.safetensors", "part-00003-of-00003.safetensors", "note"}) {
        const std::string file = run + "/step_00000009/" + name, kept = contents(file);
        test::put(file, std::string(kept.size(), 'x'));
        CHECK(latest(run)->step == 7);
        test::put(file, kept);
        CHECK(latest(run)->step == 9);
    }
}

TEST_CASE("where a rank fails, all say so and the save before stays the last") {
    const scratch_folder folder;
    const std::string run = folder / "run";
    save_together(run, 7);
    for (integer failing = 0; failing < ranks; ++failing) {
        const auto seen = save_together(run, 8, failing);
        for (integer rank = 0; rank < ranks; ++rank) {
            const std::string& text = seen[static_cast<std::size_t>(rank)];
            const std::string expected = rank == failing ? ": full" : text_of(": rank ", failing, " could not write");
            CHECK_MESSAGE(text.find(expected) != std::string::npos, text);
        }
        CHECK(latest(run)->step == 7);
    }
    // What only rank 0 does: making the folder, and putting it in place.
    for (const char* what : {"make", "rename"}) {
        static std::string step;
        step = what;
        const auto seen = save_together(run, 8, -1, [](const char* now, const std::string& path) {
            if (now == step) fail(path, ": no");
        });
        CHECK(seen[0].find(": no") != std::string::npos);
        for (const std::size_t rank : {1U, 2U}) CHECK(seen[rank].find(": rank 0 could not ") != std::string::npos);
        CHECK(latest(run)->step == 7);
    }
    CHECK(save_together(run, 8)[2] == "no error");
    CHECK(latest(run)->step == 8);
}

}  // namespace fathom
