// The head and its loss: gradients are slopes, and the pieces that the batch is cut into do not show.
#include <fathom/nn/language_head.hpp>

#include "small_block.hpp"

namespace fathom::test {

namespace {

constexpr integer tokens = 11, hidden_size = 6, vocab_size = 13;
constexpr double weight = 0.3, z_weight = 0.02;
constexpr nn::language_head<double> head{hidden_size, vocab_size};

/// What forward and backward give when logits exist for `rows` tokens at once.
struct pass {
    drawn<double> x{tokens, hidden_size, 40}, w{vocab_size, hidden_size, 41}, dw{vocab_size, hidden_size, 42, 0};
    drawn<double> dx{tokens, hidden_size, 43};
    std::vector<std::int32_t> targets{0, 12, 3, -100, 5, 3, 7, -100, -100, 1, 12};
    nn::loss_sums sums;
    carved<nn::language_head<double>::workspace (*)(arena&)> work{[](arena& memory) {
        return head.work(memory, {1, tokens});
    }};
    two_workers workers{head.scratch()};

    explicit pass(integer rows) {
        CHECK(work->rows == tokens);  // so few are one piece
        work->rows = rows;
        head.forward_backward(workers.queue, nn::micro_batch<double>{},
                              tensor<const double, axis::tokens, axis::hidden>{x.view},
                              tensor<const double, axis::vocabulary, axis::hidden>{w.view}, targets.data(), weight,
                              z_weight, *work, tensor<double, axis::tokens, axis::hidden>{dx.view},
                              tensor<double, axis::vocabulary, axis::hidden>{dw.view}, sums);
    }
    nn::loss_sums forward() {
        nn::loss_sums now;
        head.forward(workers.queue, nn::micro_batch<double>{}, tensor<const double, axis::tokens, axis::hidden>{x.view},
                     tensor<const double, axis::vocabulary, axis::hidden>{w.view}, targets.data(), *work, now);
        return now;
    }
};

}  // namespace

TEST_CASE("language head: gradients are slopes of the weighted cross-entropy and z-loss") {
    pass whole{tokens};
    CHECK(whole.forward().cross_entropy == whole.sums.cross_entropy);
    CHECK(whole.forward().z == whole.sums.z);
    const auto loss = [&] {
        const auto now = whole.forward();
        return weight * now.cross_entropy + z_weight * now.z;
    };
    check_slopes("x", whole.x.numbers, whole.dx.numbers.data(), loss, 66);
    check_slopes("head", whole.w.numbers, whole.dw.numbers.data(), loss, 78);
    for (integer c = 0; c < hidden_size; ++c) CHECK(whole.dx.view(3, c) == 0);  // an ignored target
}

TEST_CASE("language head: pieces of four tokens give what one piece gives") {
    pass whole{tokens}, cut{4};
    CHECK(cut.sums.cross_entropy == whole.sums.cross_entropy);
    CHECK(cut.sums.z == whole.sums.z);
    CHECK(cut.dx.numbers == whole.dx.numbers);
    for (std::size_t i = 0; i < cut.dw.numbers.size(); ++i)
        CHECK(cut.dw.numbers[i] == doctest::Approx(whole.dw.numbers[i]).epsilon(1e-13));
}

TEST_CASE("language head: logits exist for a bounded number of tokens at once") {
    constexpr integer many = 100'000;
    CHECK(nn::language_head<float>{256, 4096}.piece(many) == 2048);
    CHECK(nn::language_head<float>{7168, 129'280}.piece(many) == 64);
    CHECK(nn::language_head<float>{7168, 1'000'000}.piece(many) == 64);
    CHECK(nn::language_head<float>{512, 16'384}.piece(many) == 512);
    CHECK(nn::language_head<float>{512, 16'384}.piece(100) == 100);
}

}  // namespace fathom::test
