#include <doctest/doctest.h>

#include "fathom/core/error.hpp"

TEST_CASE("fail joins its parts into the message") {
    CHECK_THROWS_WITH_AS(fathom::fail("corpus.bin: token ", 7, " is '", 'x', "', expected below ", 2.5),
                         "corpus.bin: token 7 is 'x', expected below 2.5", fathom::error);
}

TEST_CASE("text_of writes numbers of every kind whole") {
    CHECK(fathom::text_of(-3, ' ', 18'446'744'073'709'551'615ull, ' ', -9'223'372'036'854'775'807ll - 1) ==
          "-3 18446744073709551615 -9223372036854775808");
    CHECK(fathom::text_of(std::string{"a"}, std::string_view{"b"}, "c", 'd', true, 1e-7f) == "abcd11e-07");
    CHECK(fathom::text_of().empty());
}
