#include "fathom/observe/memory.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

using fathom::observe::memory_of_process;

TEST_CASE("memory: what the status file says, zero without one") {
    char name[] = "/tmp/fathom-status-XXXXXX";
    const int file = ::mkstemp(name);
    REQUIRE(file >= 0);
    const std::string text = "Name:\tx\nVmPeak:\t 999 kB\nVmHWM:\t    300 kB\nVmRSS:\t    20 kB\nRssAnon:\t 7 kB\n";
    REQUIRE(::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    ::close(file);
    CHECK(memory_of_process(name).resident == 20 * 1024);
    CHECK(memory_of_process(name).peak == 300 * 1024);
    ::unlink(name);
    CHECK(memory_of_process(name).resident == 0);
}

TEST_CASE("memory: of this process") {
    const auto memory = memory_of_process();
    CHECK(memory.resident > 0);
    CHECK(memory.peak >= memory.resident);
}
