#include "fathom/data/bigram.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "fathom/core/random_stream.hpp"
#include "fathom/data/corpus_writer.hpp"
#include "scratch.hpp"

using namespace fathom;
using tests::scratch_folder;

namespace {

/// Documents in which 3 i follows i modulo 7 three times out of four, and anything else.
std::string chain(const scratch_folder& folder, int documents, std::int32_t odd_one = 6) {
    corpus_writer writer{8, 7};
    std::uint64_t drawn = 0;
    const fathom::random_stream numbers{5, 0};
    for (int d = 0; d < documents; ++d) {
        std::vector<std::int32_t> ids{1};
        while (ids.size() < 400) {
            const bool follows = numbers.uniform(drawn++) < 0.75;
            const auto any = static_cast<std::int32_t>(numbers.uniform(drawn++) * 6);
            ids.push_back(follows ? 3 * ids.back() % 6 : any);
        }
        writer.add(ids, 1, false);
    }
    writer.add(std::vector<std::int32_t>{odd_one, 0, odd_one}, 1, true);
    writer.write(folder.at("chain.bin"));
    return folder.at("chain.bin");
}

}  // namespace

TEST_CASE("bigram: a distribution after every token, near the truth where there is much text") {
    const scratch_folder folder;
    for (const int documents : {1, 30}) {  // one is cut in pieces
        const corpus text = corpus::open(chain(folder, documents));
        const bigram model{text};
        for (std::int32_t a = 0; a < 8; ++a) {
            double sum = 0;
            for (std::int32_t b = 0; b < 8; ++b) {
                CHECK(model.probability(a, b) > 0);
                sum += model.probability(a, b);
            }
            CHECK(sum == doctest::Approx(1));
        }
        if (documents == 30) CHECK(model.probability(1, 3) == doctest::Approx(0.75 + 0.25 / 6).epsilon(0.05));
    }
}

TEST_CASE("bigram: what is held out is not counted, and an unseen context has the frequencies of anywhere") {
    const scratch_folder folder;
    const corpus text = corpus::open(chain(folder, 20));
    const bigram model{text};
    const double tokens = 20 * 401;  // with the ends of documents
    CHECK(model.probability(6, 6) == doctest::Approx(1 / (tokens + 8)));
    CHECK(model.probability(6, 7) == doctest::Approx(21 / (tokens + 8)));
}

TEST_CASE("bigram: the weights beat both parts alone, and the loss counts targets only") {
    const scratch_folder folder;
    const corpus text = corpus::open(chain(folder, 30));
    const bigram model{text};
    batch seen;
    seen.tokens = {1, 3, 6, 6};
    seen.labels = {3, -100, 6, -100};
    CHECK(model.loss(seen) == doctest::Approx(-std::log(model.probability(1, 3)) - std::log(model.probability(6, 6))));
}
