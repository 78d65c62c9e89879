// Free memory as the system and a process group's limit tell it.
#include <fathom/observe/free_memory.hpp>

#include <doctest/doctest.h>

#include "../scratch_folder.hpp"

namespace fathom {

TEST_CASE("free_memory: the system's, or what a limit leaves") {
    const test::scratch_folder folder;
    const std::string system = folder / "meminfo";
    const auto free = [&] { return observe::free_memory(system.c_str(), folder.path()); };
    CHECK(free() == -1);
    test::put(system, "MemTotal:  9000 kB\nMemAvailable:  4000 kB\n");
    CHECK(free() == 4000 * 1024);
    test::put(folder / "memory.max", "max\n");
    test::put(folder / "memory.current", "5000\n");
    CHECK(free() == 4000 * 1024);
    test::put(folder / "memory.max", "1000000\n");
    CHECK(free() == 995'000);
    test::put(folder / "memory.current", "2000000\n");
    CHECK(free() == 0);
    test::put(system, "");
    CHECK(free() == 0);
}

TEST_CASE("free_memory: this machine has some") { CHECK(observe::free_memory() > 1_MiB); }

}  // namespace fathom
