// The look at every rank before the first step.
#include <fathom/train/check_health.hpp>

#include <doctest/doctest.h>

#include <fathom/comm/threads/run.hpp>
#include <fathom/device/host/workers.hpp>
#include <limits>
#include <mutex>
#include <vector>

#include "../scratch_folder.hpp"

namespace fathom {
namespace {

/// What three ranks say, of which rank 1 is to find `bytes`, `least`.
std::vector<std::string> said_by_ranks(integer bytes, const train::health_floors& least) {
    std::vector<std::string> said(3);
    comm::threads::run(3, [&](auto& ranks) {
        host::workers workers{1};
        host::queue queue{workers, nullptr, 0};
        const bool odd = ranks.rank() == 1;
        said[static_cast<std::size_t>(ranks.rank())] =
            test::message_of([&] { train::check_health(comm::link{ranks}, queue, odd ? bytes : 1, 3, least); });
    });
    return said;
}

}  // namespace

TEST_CASE("check_health: ranks that are well go on") {
    for (const std::string& text : said_by_ranks(1, {})) CHECK(text == "no error");
}

TEST_CASE("check_health: every rank says which rank is short of memory, and how much it needs") {
    const auto said = said_by_ranks(integer{1} << 60, {});
    CHECK(said[0].starts_with("health check; rank 1: found "));
    CHECK(said[0].find(" bytes of free memory on its machine, expected the 3458764513820540928 that") != said[0].npos);
    CHECK(said[0].find("health_check=false") != said[0].npos);
    CHECK(said[1] == said[0]);
    CHECK(said[2] == said[0]);
}

TEST_CASE("check_health: speeds have a floor each") {
    constexpr double beyond = std::numeric_limits<double>::max();
    const auto slow = said_by_ranks(1, {.product = beyond})[2];
    CHECK(slow.find("rank 0: found a product at ") != slow.npos);
    CHECK(slow.find("rank 2: found a product at ") != slow.npos);
    CHECK(slow.find("found a sum") == slow.npos);
    const auto far = said_by_ranks(1, {.all_reduce = beyond})[0];
    CHECK(far.find("rank 2: found a sum over ranks at ") != far.npos);
    CHECK(far.find("found a product") == far.npos);
}

TEST_CASE("check_health: one rank looks at its memory only") {
    host::workers workers{1};
    host::queue queue{workers, nullptr, 0};
    constexpr double beyond = std::numeric_limits<double>::max();
    CHECK(test::message_of([&] { train::check_health({}, queue, 1, 1, {beyond, beyond}); }) == "no error");
    CHECK(test::message_of([&] {
              train::check_health({}, queue, integer{1} << 60);
          }).starts_with("health check; rank 0"));
}

}  // namespace fathom
