#include "fathom/checkpoint/directory.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "../scratch_folder.hpp"

namespace checkpoint = fathom::checkpoint;
using fathom::file_hook, fathom::write_atomically;
using fathom::test::contents, fathom::test::message_of, fathom::test::put, fathom::test::scratch_folder;

namespace {

/// Two files that say which save wrote them.
auto files(const std::string& text, file_hook hook = nullptr) {
    return [text, hook](const std::string& folder) {
        write_atomically(folder + "/weights", text + " weights", hook);
        write_atomically(folder + "/state", text + " state", hook);
    };
}

void save(const std::string& run, std::int64_t step, std::size_t keep = 2, file_hook hook = nullptr) {
    checkpoint::save_step(run, step, keep, files(std::to_string(step), hook), hook);
}

std::vector<std::int64_t> steps_of(const std::string& run) {
    std::vector<std::int64_t> steps;
    for (const auto& saved : checkpoint::saved_steps(run)) steps.push_back(saved.step);
    return steps;
}

int steps_to_live = 0;
void die_in_time(const char*, const std::string&) {
    if (steps_to_live-- == 0) ::_exit(1);
}
void fail_in_time(const char* step, const std::string& path) {
    if (steps_to_live-- == 0) fathom::fail(path, ": refused to ", std::string_view{step});
}

/// The last save, which must be whole and one of the two.
std::int64_t last_of(const std::string& run) {
    std::string skipped;
    const auto last = checkpoint::latest_complete(run, &skipped);
    REQUIRE(last);
    CHECK(skipped.empty());
    CHECK(contents(last->path + "/weights") == std::to_string(last->step) + " weights");
    CHECK(contents(last->path + "/state") == std::to_string(last->step) + " state");
    return last->step;
}

}  // namespace

TEST_CASE("a run's last save is found, and only the last ones are kept") {
    const scratch_folder folder;
    const std::string run = folder / "runs/tiny";
    CHECK_FALSE(checkpoint::latest_complete(run));
    for (const std::int64_t step : {100, 200, 300}) save(run, step);
    CHECK(steps_of(run) == std::vector<std::int64_t>{200, 300});
    CHECK(last_of(run) == 300);
    CHECK(checkpoint::latest_complete(run)->path == run + "/step_00000300");
    save(run, 50, 1);  // the new save stays, also below the others
    CHECK(steps_of(run) == std::vector<std::int64_t>{50});
    CHECK(message_of([&] { save(run, 60, 0); }) ==
          run + ": found step 60 and 0 saves to keep, expected 0 and 1 or more");
}

TEST_CASE("what is not a sealed save of the run is never taken for one") {
    const scratch_folder folder;
    const std::string run = folder.path();
    save(run, 100);
    for (const char* name :
         {"step_00000200.partial", "step_200", "step_x", "step_-0000001", "other", "step_00000300"}) {
        std::filesystem::create_directory(folder / name);
        if (std::string_view{name} != "step_00000300") put(folder / name + "/complete", "{\"members\": []}");
    }
    CHECK(steps_of(run) == std::vector<std::int64_t>{100});
    CHECK(last_of(run) == 100);
}

TEST_CASE("a damaged save is skipped for the one before, and said to be") {
    const scratch_folder folder;
    const std::string run = folder.path(), weights = run + "/step_00000200/weights";
    save(run, 100);
    save(run, 200);
    std::string expected;
    SUBCASE("a changed byte") {
        put(weights, "201 weights");
        expected = weights + ": found the checksum ";
    }
    SUBCASE("a shorter file") {
        put(weights, "200");
        expected = weights + ": found 3 bytes, expected 11";
    }
    SUBCASE("a missing file") {
        std::filesystem::remove(weights);
        expected = weights + ": cannot be opened: No such file or directory";
    }
    SUBCASE("a list that is cut") {
        put(run + "/step_00000200/complete", "{\"members\": [");
        expected = run + "/step_00000200/complete:1:14: found the end of the file, expected a value";
    }
    SUBCASE("a list that leads outside") {
        put(run + "/step_00000200/complete", "{\"members\": [{\"name\": \"../x\"}]}");
        expected = run + "/step_00000200/complete:1:14: found the member \"../x\", expected a plain name";
    }
    std::string skipped;
    const auto last = checkpoint::latest_complete(run, &skipped);
    REQUIRE(last);
    CHECK(last->step == 100);
    CHECK(skipped.starts_with(expected));
}

TEST_CASE("a save that is killed at any step leaves the one before or the new one whole") {
    int step = 0;
    for (bool finished = false; !finished; ++step) {
        REQUIRE(step < 100);
        const scratch_folder folder;
        save(folder.path(), 100, 1);
        const pid_t child = ::fork();
        if (child == 0) {
            steps_to_live = step;
            save(folder.path(), 200, 1, die_in_time);
            ::_exit(0);
        }
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        finished = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        CHECK(last_of(folder.path()) >= (finished ? 200 : 100));
        save(folder.path(), 300, 1);  // and the next save clears what was left
        CHECK(folder.entries() == 1);
        CHECK(last_of(folder.path()) == 300);
    }
    CHECK(step > 20);
}

TEST_CASE("a folder that is replaced is the old or the new one at any step") {
    int step = 0;
    for (bool finished = false; !finished; ++step) {
        REQUIRE(step < 100);
        const scratch_folder folder;
        const std::string model = folder / "model";
        checkpoint::write_directory(model, files("100"));
        const pid_t child = ::fork();
        if (child == 0) {
            steps_to_live = step;
            checkpoint::write_directory(model + "/", files("200", die_in_time), die_in_time);
            ::_exit(0);
        }
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        finished = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        CHECK_NOTHROW(checkpoint::check_directory(model));
        const std::string found = contents(model + "/weights");
        CHECK((found == "200 weights" || (found == "100 weights" && !finished)));
        CHECK(contents(model + "/state").substr(0, 3) == found.substr(0, 3));
    }
    CHECK(step > 15);
}

TEST_CASE("a save that fails at any step reports it and keeps what was there") {
    int step = 0;
    for (bool finished = false; !finished; ++step) {
        REQUIRE(step < 100);
        const scratch_folder folder;
        save(folder.path(), 100, 1);
        steps_to_live = step;
        const std::string message = message_of([&] { save(folder.path(), 200, 1, fail_in_time); });
        finished = message == "no error";
        CHECK((finished || message.find(": refused to ") != std::string::npos));
        CHECK(last_of(folder.path()) >= (finished ? 200 : 100));
    }
    CHECK(step > 20);
}

TEST_CASE("a disk that fills up while saving loses nothing saved before") {
    const scratch_folder folder;
    save(folder.path(), 100);
    // A limit on the size of files stops a write half way, as a full disk does.
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    rlimit before{};
    ::getrlimit(RLIMIT_FSIZE, &before);
    rlimit small = before;
    small.rlim_cur = 4096;
    ::setrlimit(RLIMIT_FSIZE, &small);
    const std::string message = message_of([&] {
        checkpoint::save_step(folder.path(), 200, 1, [](const std::string& to) {
            write_atomically(to + "/state", "200 state");
            write_atomically(to + "/weights", std::string(10'000, 'x'));
        });
    });
    ::setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    CHECK(message ==
          (folder / "step_00000200.partial/weights: cannot be written: File too large after 4096 of 10000 bytes; "
                    "what was there before is untouched"));
    CHECK(last_of(folder.path()) == 100);
    CHECK(folder.entries() == 1);
}

TEST_CASE("a folder with files of somebody else is not replaced") {
    const scratch_folder folder;
    const auto refused = [&] { return message_of([&] { checkpoint::write_directory(folder / "mine", files("1")); }); };
    std::filesystem::create_directory(folder / "mine");
    CHECK(refused() == "no error");  // an empty folder is nobody's
    CHECK(refused() == "no error");
    put(folder / "mine/thesis.tex", "text");
    CHECK(
        refused() ==
        (folder /
         "mine: found thesis.tex, which no save wrote, expected a folder to make or to replace; nothing was changed"));
    CHECK(contents(folder / "mine/thesis.tex") == "text");
    put(folder / "file", "text");
    CHECK(message_of([&] { checkpoint::write_directory(folder / "file", files("1")); }) ==
          (folder / "file: cannot be listed: Not a directory"));
    CHECK(message_of([&] { checkpoint::write_directory(folder / "file/model", files("1")); }) ==
          (folder / "file: cannot be made: File exists"));
}
