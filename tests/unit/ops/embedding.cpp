#include <doctest/doctest.h>

#include <fathom/ops/embedding.hpp>

#include "numbers.hpp"

namespace fathom::test {

namespace {

std::vector<std::int32_t> tokens_of(integer count, integer vocabulary) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
    const random_stream source{11, 1};
    for (std::size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = static_cast<std::int32_t>(source.uniform(i) * static_cast<double>(vocabulary));
    return tokens;
}

}  // namespace

TEST_CASE_TEMPLATE("an embedding copies rows, its backward adds to them in the order of the tokens", T, double, float,
                   bf16) {
    using A = accumulator_t<T>;
    constexpr integer vocabulary = 7;
    for (const integer count : {0, 1, 100})
        for (const integer width : {1, 130}) {
            const auto tokens = tokens_of(count, vocabulary);
            numbers<T> table(vocabulary, width, 1), dy(count, width, 2, 1, 3), y(count, width, 0, 1, 2);
            numbers<A> expected(vocabulary, width, 3);
            for (integer r = 0; r < count; ++r)
                for (integer i = 0; i < width; ++i)
                    expected.view()(tokens[static_cast<std::size_t>(r)], i) += static_cast<A>(dy.view()(r, i));
            for (const int workers : {1, 2, 3}) {
                pool p(workers);
                numbers<A> dtable(vocabulary, width, 3);
                ops::embed(p.queue, y.view(), tokens.data(), table.view());
                ops::embed_backward(p.queue, dtable.view(), tokens.data(), dy.view());
                CHECK(same_bits(dtable.memory, expected.memory));
                bool equal = true;
                for (integer r = 0; r < count; ++r)
                    for (integer i = 0; i < width; ++i)
                        equal = equal && y(r, i) == table(tokens[static_cast<std::size_t>(r)], i);
                CHECK(equal);
            }
        }
}

TEST_CASE("slices of a table that ranks split add up to the whole") {
    constexpr integer vocabulary = 6, width = 70;
    const auto tokens = tokens_of(40, vocabulary);
    numbers<double> table(vocabulary, width, 1), dy(40, width, 2), whole(40, width), sum(40, width), part(40, width);
    numbers<double> dtable(vocabulary, width, 3), slopes(vocabulary, width, 3);
    pool p(2);
    ops::embed(p.queue, whole.view(), tokens.data(), table.view());
    ops::embed_backward(p.queue, dtable.view(), tokens.data(), dy.view());
    for (const integer first : {0, 2, 4}) {
        part.memory.assign(part.memory.size(), 99);
        ops::embed(p.queue, part.view(), tokens.data(), table.view().rows_at(first, 2), first, vocabulary);
        for (std::size_t i = 0; i < sum.memory.size(); ++i) sum.memory[i] += part.memory[i];
        ops::embed_backward(p.queue, slopes.view().rows_at(first, 2), tokens.data(), dy.view(), first);
    }
    CHECK(same_bits(sum.memory, whole.memory));
    CHECK(same_bits(slopes.memory, dtable.memory));
}

TEST_CASE("a token outside the table is refused with its place") {
    numbers<float> table(7, 4, 1), y(3, 4);
    pool p(2);
    for (const std::int32_t bad : {7, -1}) {
        const std::int32_t tokens[] = {0, 6, bad};
        CHECK_THROWS_WITH_AS(ops::embed(p.queue, y.view(), tokens, table.view()),
                             text_of("embedding: token 2 of the batch is ", bad, ", expected an id in [0, 7)").c_str(),
                             error);
        CHECK_THROWS_WITH_AS(ops::embed(p.queue, y.view(), tokens, table.view().rows_at(4, 2), 4, 7),
                             text_of("embedding: token 2 of the batch is ", bad, ", expected an id in [0, 7)").c_str(),
                             error);
    }
}

}  // namespace fathom::test
