#include "fathom/observe/log.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <limits>
#include <string>

#include "fathom/core/file.hpp"
#include "fathom/core/json.hpp"

using namespace fathom;

TEST_CASE("log: lines of JSON, appended, whatever the fields hold") {
    char name[] = "/tmp/fathom-log-XXXXXX";
    ::close(::mkstemp(name));
    for (const int step : {1, 2}) {
        observe::log log{name};
        log.write("step", {{"step", step},
                           {"loss", 0.1},
                           {"bad", std::numeric_limits<double>::quiet_NaN()},
                           {"large", std::int64_t{1} << 62},
                           {"text", "a \"b\" \\ \n\t é"}});
    }
    const mapped_file file{name};
    const std::string_view text = file.text();
    const std::size_t end = text.find('\n');
    const json::value first = json::parse(text.substr(0, end), "log"),
                      second = json::parse(text.substr(end + 1), "log");
    CHECK(first.at("kind").as_string() == "step");
    CHECK(first.at("step").as_int() == 1);
    CHECK(second.at("step").as_int() == 2);
    CHECK(first.at("loss").as_number() == 0.1);
    CHECK(first.at("bad").is_null());
    CHECK(first.at("large").as_int() == std::int64_t{1} << 62);
    CHECK(first.at("text").as_string() == "a \"b\" \\ \n\t é");
    ::unlink(name);
}

TEST_CASE("log: refuses what it cannot write, and says why") {
    CHECK_THROWS_WITH_AS(observe::log{"/nowhere/log"},
                         "/nowhere/log: cannot be opened to write: No such file or directory", error);
    observe::log full{"/dev/full"};
    CHECK_THROWS_WITH_AS(full.write("step", {}), "/dev/full: cannot be written: No space left on device", error);
}
