// What the simulated block gives when nothing is wrong: exchanges, votes, reductions, tensor-core tiles, copies.
#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <fathom/device/block/fragment.hpp>
#include <fathom/device/block/reduce.hpp>
#include <fathom/device/simulated/launch.hpp>
#include <type_traits>
#include <vector>

namespace fathom::test {

namespace {

using block_of = simulated::block;

template <int Threads, class Body> struct lambda_kernel {
    static constexpr const char* name = "lambda";
    static constexpr int threads = Threads;
    static constexpr integer shared_bytes() { return 4096; }
    Body body;
    void operator()(block_of& block) const { body(block); }
};
template <int Threads, class Body> void each_thread(Body body) {
    simulated::launch(lambda_kernel<Threads, Body>{body}, 1);
}

struct counting {
    static constexpr const char* name = "count";
    static constexpr int threads = 64;
    std::vector<int>& seen;
    void operator()(block_of& block, device::rows<block_of, int> sum) const {
        seen[block.thread_rank()] = block.atomic_add(sum.row(0), 2);
        block.atomic_max(sum.row(0) + 1, block.thread_rank() ^ 21);
    }
};

struct copying {
    static constexpr const char* name = "copies";
    static constexpr int threads = 32;
    static constexpr integer shared_bytes() { return 128; }
    void operator()(block_of& block, device::rows<block_of, const float> x) const {
        const auto held = block.shared<float>(12);
        if (block.thread_rank() != 0) return;
        block.copy_async(held, x.row(0));
        block.commit_copies();
        block.copy_async(held + 4, x.row(0) + 4);
        block.copy_async(held + 8, x.row(0) + 8, false);
        block.commit_copies();
        block.wait_copies(std::integral_constant<int, 1>{});
        CHECK(static_cast<float>(held[3]) == 4);
        block.wait_copies();
        CHECK(static_cast<float>(held[7]) == 8);
        CHECK(static_cast<float>(held[11]) == 0);
    }
};

}  // namespace

TEST_CASE("exchanges within tiles of every size") {
    std::vector<int> seen(64 * 4);
    each_thread<64>([&](block_of& block) {
        const int t = block.thread_rank();
        const auto four = block.tile<4>();
        CHECK(four.meta_group_rank() == t / 4);
        CHECK(four.meta_group_size() == 16);
        seen[t * 4] = block.warp().shfl(t, 5);
        seen[t * 4 + 1] = four.shfl_xor(t, 3);
        seen[t * 4 + 2] = block.warp().shfl_down(t, 3);
        seen[t * 4 + 3] = four.shfl_up(t, 1);
    });
    for (int t = 0; t < 64; ++t) {
        CHECK(seen[t * 4] == t / 32 * 32 + 5);
        CHECK(seen[t * 4 + 1] == (t ^ 3));
        CHECK(seen[t * 4 + 2] == (t % 32 < 29 ? t + 3 : t));
        CHECK(seen[t * 4 + 3] == (t % 4 == 0 ? t : t - 1));
    }
}

TEST_CASE("votes") {
    each_thread<32>([](block_of& block) {
        const int t = block.thread_rank();
        CHECK(block.warp().ballot(t % 3 == 0) == 0x49249249u);
        CHECK(block.tile<8>().ballot(t == 9) == (t / 8 == 1 ? 2u : 0u));
        CHECK(block.warp().any(t == 31));
        CHECK_FALSE(block.warp().any(t == 32));
        CHECK(block.warp().all(t < 32));
        CHECK_FALSE(block.tile<8>().all(t % 8 != 7));
    });
}

TEST_CASE("reductions give every thread the same") {
    each_thread<96>([](block_of& block) {
        const auto scratch = block.shared<double>(32);
        const int t = block.thread_rank();
        CHECK(device::reduce(block.warp(), t, device::plus{}) == t / 32 * 1024 + 496);
        CHECK(device::reduce(block, scratch, static_cast<double>(t), device::plus{}) == 95 * 48);
        CHECK(device::reduce(block, scratch, static_cast<double>(-t), device::maximum{}) == 0);
    });
}

TEST_CASE("atomics give what was there before") {
    std::vector<int> sums(2), before(64);
    simulated::launch(counting{before}, 1, vector_view(sums.data(), 2));
    CHECK(sums[0] == 128);
    CHECK(sums[1] == 63);
    CHECK(before[63] == 126);
}

TEST_CASE("ldmatrix and mma multiply tiles, from rows and from columns") {
    // a[16, 16] and b[16, 8] of small integers, exact in bf16.
    float a[16][16], b[16][8], c[16][8] = {};
    for (int i = 0; i < 16; ++i)
        for (int k = 0; k < 16; ++k) a[i][k] = static_cast<float>((3 * i + 5 * k) % 11 - 5);
    for (int k = 0; k < 16; ++k)
        for (int j = 0; j < 8; ++j) b[k][j] = static_cast<float>((7 * k + 2 * j) % 13 - 6);
    for (int i = 0; i < 16; ++i)
        for (int j = 0; j < 8; ++j) {
            c[i][j] = 1;
            for (int k = 0; k < 16; ++k) c[i][j] += a[i][k] * b[k][j];
        }
    each_thread<32>([&](block_of& block) {
        const auto warp = block.warp();
        const int lane = warp.thread_rank();
        // By the layouts of fragments.
        device::fragment_a from_a{};
        device::fragment_b from_b{};
        using af = device::fragment_a;
        using bf = device::fragment_b;
        using cf = device::fragment_c;
        for (int r = 0; r < 4; ++r)
            from_a.registers[r] =
                block.round_pair(a[af::row(lane, r)][af::k(lane, r)], a[af::row(lane, r)][af::k(lane, r) + 1]);
        for (int r = 0; r < 2; ++r)
            from_b.registers[r] =
                block.round_pair(b[bf::k(lane, r)][bf::column(lane, r)], b[bf::k(lane, r) + 1][bf::column(lane, r)]);
        device::fragment_c sums{{1, 1, 1, 1}};
        warp.mma(sums, from_a, from_b);
        for (int r = 0; r < 4; ++r) CHECK(sums.registers[r] == c[cf::row(lane, r)][cf::column(lane, r)]);
        // By ldmatrix: a as it lies, b[k, j] once as it lies (transposed) and once with columns as rows.
        const auto rows_a = block.shared<bf16>(256), rows_b = block.shared<bf16>(256),
                   columns_b = block.shared<bf16>(256);
        for (int i = lane; i < 256; i += 32) {
            rows_a[i] = bf16{a[i / 16][i % 16]};
            rows_b[i] = i % 16 < 8 ? bf16{b[i / 16][i % 16]} : bf16{};
            columns_b[i] = i / 16 < 8 ? bf16{b[i % 16][i / 16]} : bf16{};
        }
        block.sync();
        const auto loaded_a = warp.ldmatrix(rows_a + (lane % 16 * 16 + lane / 16 * 8));
        for (int r = 0; r < 4; ++r) CHECK(loaded_a[r] == from_a.registers[r]);
        const auto loaded_b = warp.ldmatrix(rows_b + (lane % 16 * 16 + lane / 16 * 8), true);
        const auto other_b = warp.ldmatrix(columns_b + (lane % 8 * 16 + lane / 8 % 2 * 8));
        for (int r = 0; r < 2; ++r) {
            CHECK(loaded_b[r] == from_b.registers[r]);
            CHECK(other_b[r] == from_b.registers[r]);
        }
    });
}

TEST_CASE("asynchronous copies come in batches; invalid ones are zeros") {
    alignas(16) static float source[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    simulated::launch(copying{}, 1, vector_view<const float>(source, 8));
}

}  // namespace fathom::test
