#include <doctest/doctest.h>

#include "fathom/core/error.hpp"

TEST_CASE("fail joins its parts into the message") {
    CHECK_THROWS_WITH_AS(fathom::fail("corpus.bin: token ", 7, " is '", 'x', "', expected below ", 2.5),
                         "corpus.bin: token 7 is 'x', expected below 2.5", fathom::error);
}
