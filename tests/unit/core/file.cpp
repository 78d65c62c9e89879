#include "fathom/core/file.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "../scratch_folder.hpp"

using namespace fathom;
using test::contents, test::message_of, test::scratch_folder;

namespace {

int steps_to_live = 0;

void die_in_time(const char*, const std::string&) {
    if (steps_to_live-- == 0) ::_exit(1);
}

}  // namespace

TEST_CASE("a mapped file is the file's bytes") {
    const scratch_folder folder;
    test::put(folder / "a", "some\0bytes");
    mapped_file first{folder / "a"};
    CHECK(first.text() == "some");
    CHECK(first.data().size() == 4);
    mapped_file second{std::move(first)};
    CHECK(second.text() == "some");
    CHECK(second.path() == (folder / "a"));
    test::put(folder / "b", "other");
    second = mapped_file{folder / "b"};
    CHECK(second.text() == "other");

    test::put(folder / "empty", "");
    CHECK(mapped_file{folder / "empty"}.data().empty());
}

TEST_CASE("what cannot be mapped is named with the reason") {
    const scratch_folder folder;
    CHECK(message_of([&] { mapped_file{folder / "none"}; }) ==
          (folder / "none: cannot be opened: No such file or directory"));
    CHECK(message_of([&] { mapped_file{folder.path()}; }) == folder.path() + ": found a directory, expected a file");
    CHECK(message_of([] { mapped_file{"/dev/null"}; }) == "/dev/null: found a device or pipe, expected a file");
    REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
    CHECK(message_of([&] { mapped_file{folder / "pipe"}; }) ==
          (folder / "pipe: found a device or pipe, expected a file"));
}

TEST_CASE("an atomic write joins its parts and replaces what was there") {
    const scratch_folder folder;
    write_atomically(folder / "a", "first");
    CHECK(contents(folder / "a") == "first");
    const std::string left = "left ", right = "right";
    write_atomically(folder / "a", {std::as_bytes(std::span{left}), {}, std::as_bytes(std::span{right})});
    CHECK(contents(folder / "a") == "left right");
    CHECK(folder.entries() == 1);
    CHECK(
        message_of([&] { write_atomically(folder / "no/a", "text"); }) ==
        (folder /
         "no/a: cannot be written: No such file or directory after 0 of 4 bytes; what was there before is untouched"));
}

TEST_CASE("an atomic write that is killed at any step leaves the old text or the new") {
    const scratch_folder folder;
    int step = 0;
    for (bool finished = false; !finished; ++step) {
        REQUIRE(step < 20);
        const std::string path = folder / std::to_string(step);
        write_atomically(path, "old");
        const pid_t child = ::fork();
        if (child == 0) {
            steps_to_live = step;
            write_atomically(path, "new", die_in_time);
            ::_exit(0);
        }
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        finished = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        const std::string found = contents(path);
        CHECK((found == "new" || (found == "old" && !finished)));
    }
    CHECK(step == 6);  // open, write, sync, rename, sync of the folder, none
}

TEST_CASE("a full disk loses nothing and leaves nothing") {
    const scratch_folder folder;
    write_atomically(folder / "a", "old");
    // A limit on the size of files stops a write half way, as a full disk does.
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    rlimit before{};
    ::getrlimit(RLIMIT_FSIZE, &before);
    rlimit small = before;
    small.rlim_cur = 4096;
    ::setrlimit(RLIMIT_FSIZE, &small);
    const std::string message = message_of([&] { write_atomically(folder / "a", std::string(10'000, 'x')); });
    ::setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    CHECK(message ==
          (folder /
           "a: cannot be written: File too large after 4096 of 10000 bytes; what was there before is untouched"));
    CHECK(contents(folder / "a") == "old");
    CHECK(folder.entries() == 1);
}
