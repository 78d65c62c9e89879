// Every fault that the simulated block promises to find, planted in a kernel; and the right kernel beside it.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <fathom/device/block/memory.hpp>
#include <fathom/device/simulated/launch.hpp>
#include <string>
#include <type_traits>
#include <vector>

namespace fathom::test {

namespace {

/// A kernel of 64 threads out of a lambda (block, x), with some shared memory.
template <class Body> struct planted {
    static constexpr const char* name = "planted";
    static constexpr int threads = 64;
    static constexpr integer shared_bytes() { return 1024; }
    Body body;
    template <class Block> void operator()(Block& block, device::rows<Block, float> x) const { body(block, x); }
};

using block_of = simulated::block;
using rows_of = device::rows<block_of, float>;

/// What a launch over x[2, 64], with rows of 72 numbers, says; empty if it finds nothing.
template <class Body> std::string said(Body body, integer blocks = 2) {
    alignas(16) float memory[2 * 72] = {};
    try {
        simulated::launch(planted<Body>{body}, blocks, matrix<float>{memory, 2, 64, 72});
    } catch (const error& fault) {
        return fault.what();
    }
    return {};
}

struct thin {
    static constexpr const char* name = "thin";
    static constexpr int threads = 48;
    void operator()(block_of&) const {}
};
struct large {
    static constexpr const char* name = "large";
    static constexpr int threads = 32;
    static constexpr integer shared_bytes() { return 1 << 20; }
    void operator()(block_of&) const {}
};

bool has(const std::string& text, const std::string& part) {
    if (text.find(part) != std::string::npos) return true;
    MESSAGE("found: " << text);
    return false;
}

}  // namespace

TEST_CASE("a kernel without faults runs as it stands") {
    CHECK(said([](block_of& block, rows_of x) {
              const auto held = block.shared<float>(64);
              held[block.thread_rank()] = static_cast<float>(x(block.block_rank(), block.thread_rank()));
              block.sync();
              x(block.block_rank(), block.thread_rank()) = static_cast<float>(held[63 - block.thread_rank()]) + 1;
          }).empty());
}

TEST_CASE("global memory: out of bounds names kernel, block, thread, index and argument") {
    const auto text = said([](block_of& block, rows_of x) { x(block.block_rank(), block.thread_rank() + 1) = 1; });
    CHECK(text ==
          "kernel planted, block 0, thread 63: uses index 64 of row 0 of argument 1, which has 64 numbers");  // a gap
    CHECK(has(said([](block_of& block, rows_of x) { x(0, block.thread_rank() - 1) = 1; }), "uses index -1 of row 0"));
    CHECK(has(said([](block_of&, rows_of x) { (x.row(1) + 60)[4] = 1; }), "index 64 of row 1"));
    CHECK(has(said([](block_of& block, rows_of x) { x(2 + block.block_rank(), 0) = 1; }),
              "takes row 2 of argument 1, which has 2 rows"));
}

TEST_CASE("shared memory: out of bounds, more than was asked for") {
    CHECK(has(said([](block_of& block, rows_of) { block.shared<float>(63)[block.thread_rank()] = 1; }),
              "thread 63: uses index 63 of shared array 0, which has 63 numbers"));
    CHECK(has(said([](block_of& block, rows_of) { block.shared<double>(129); }),
              "takes shared memory up to byte 1032, but was launched with 1024"));
}

TEST_CASE("shared memory that nobody has written is not read") {
    CHECK(has(said([](block_of& block, rows_of x) { x(0, 0) = static_cast<float>(block.shared<float>(64)[5]); }),
              "thread 0: reads index 5 of shared array 0, which nobody has written"));
}

TEST_CASE("a barrier that some threads miss") {
    CHECK(has(said([](block_of& block, rows_of) {
                  if (block.thread_rank() != 7) block.sync();
              }),
              "waits in sync at faults.cpp:"));
    CHECK(has(said([](block_of& block, rows_of) {
                  if (block.thread_rank() != 7) block.sync();
              }),
              "but thread 7 has ended"));
    const auto two_places = [](block_of& block, rows_of) {
        if (block.thread_rank() < 32)
            block.sync();
        else
            block.sync();
    };
    CHECK(has(said(two_places), "thread 32: sync at faults.cpp:"));
    CHECK(has(said([](block_of& block, rows_of) {
                  if (block.thread_rank() < 32)
                      block.sync();
                  else
                      block.warp().sync();
              }),
              "but thread 32 has ended"));
}

TEST_CASE("an exchange that a lane misses") {
    const auto text = said([](block_of& block, rows_of) {
        if (block.thread_rank() % 32 < 30) block.warp().shfl(1, 0);
    });
    CHECK(has(text, "waits in shfl at faults.cpp:"));
    CHECK(has(text, "but thread 30 has ended"));
    CHECK(has(said([](block_of& block, rows_of) {
                  if (block.thread_rank() % 2 == 0)
                      block.warp().shfl(1, 0);
                  else
                      static_cast<void>(block.warp().ballot(true));
              }),
              "thread 1: ballot at faults.cpp:"));
    CHECK(said([](block_of& block, rows_of) {
              if (block.thread_rank() < 4) block.tile<4>().shfl(1, 0);  // the other tiles are not concerned
          }).empty());
}

TEST_CASE("races within a block") {
    CHECK(has(said([](block_of& block, rows_of) { block.shared<float>(64)[0] = 1; }),
              "thread 1: writes index 0 of shared array 0, which thread 0 has written with no barrier between"));
    const auto read_after_write = [](auto wait) {
        return said([wait](block_of& block, rows_of x) {
            const auto held = block.shared<float>(64);
            held[block.thread_rank()] = 1;
            wait(block);
            x(block.block_rank(), block.thread_rank()) = static_cast<float>(held[block.thread_rank() ^ 1]);
        });
    };
    CHECK(has(read_after_write([](block_of& block) { block.warp().shfl(1, 0); }),  // no order of memory
              "thread 31: reads index 30 of shared array 0, which thread 30 has written with no barrier between"));
    CHECK(read_after_write([](block_of& block) { block.tile<2>().sync(); }).empty());
    CHECK(read_after_write([](block_of& block) { block.warp().sync(); }).empty());
    const auto write_after_read = [](auto wait) {
        return said([wait](block_of& block, rows_of x) {
            const float before = static_cast<float>(x(block.block_rank(), 63 - block.thread_rank()));
            wait(block);
            x(block.block_rank(), block.thread_rank()) = before;
        });
    };
    CHECK(has(write_after_read([](block_of&) {}),
              "thread 32: reads index 31 of row 0 of argument 1, which thread 31 has written with no barrier between"));
    CHECK(has(write_after_read([](block_of& block) { block.warp().sync(); }), "has written with no barrier between"));
    CHECK(write_after_read([](block_of& block) { block.sync(); }).empty());
}

TEST_CASE("a read by many before the write of one of them") {
    CHECK(has(said([](block_of& block, rows_of x) {
                  const float all = static_cast<float>(x(block.block_rank(), 5));
                  block.warp().sync();
                  if (block.thread_rank() == 63) x(block.block_rank(), 5) = all;
              }),
              "thread 63: writes index 5 of row 0 of argument 1, which thread 0 has read"));
}

TEST_CASE("blocks have no order") {
    CHECK(has(said([](block_of& block, rows_of x) {
                  if (block.thread_rank() == 3) x(0, 3) = 1;
              }),
              "block 1, thread 3: writes index 3 of row 0 of argument 1, which thread 3 of block 0 has written; blocks "
              "have no order"));
    CHECK(has(said([](block_of& block, rows_of x) {
                  if (block.block_rank() == 0)
                      static_cast<void>(static_cast<float>(x(1, block.thread_rank())));
                  else
                      x(1, block.thread_rank()) = 1;
              }),
              "block 1, thread 0: writes index 0 of row 1 of argument 1, which thread 0 of block 0 has read"));
}

TEST_CASE("atomics clash with nothing but what is not atomic") {
    CHECK(said([](block_of& block, rows_of x) { block.atomic_add(x.row(0) + 3, 1.0f); }).empty());
    const auto read_after = [](auto wait) {
        return said([wait](block_of& block, rows_of x) {
            const auto held = block.shared<int>(64);
            held[block.thread_rank()] = 0;
            block.sync();
            block.atomic_add(held + block.thread_rank() / 32, 1);
            wait(block);
            static_cast<void>(static_cast<int>(held[block.thread_rank() / 32]));
            static_cast<void>(x);
        });
    };
    CHECK(
        has(read_after([](block_of&) {}),
            "thread 1: changes atomically index 0 of shared array 0, which thread 0 has read with no barrier between"));
    CHECK(
        has(read_after([](block_of& block) { block.warp().shfl(1, 0); }),
            "thread 31: reads index 0 of shared array 0, which several threads have written with no barrier between"));
    CHECK(read_after([](block_of& block) { block.warp().sync(); }).empty());
    CHECK(has(said([](block_of& block, rows_of x) {
                  if (block.thread_rank() == 0) x(0, 3) = 1;
                  if (block.thread_rank() == 1) block.atomic_add(x.row(0) + 3, 1.0f);
              }),
              "thread 1: changes atomically index 3 of row 0 of argument 1, which thread 0 has written"));
}

TEST_CASE("an access of many numbers needs their alignment") {
    const auto reads = [](integer place) {
        return said([place](block_of& block, rows_of x) {
            device::pack<float, 4> four;
            block.load(four, x.row(0) + place);
        });
    };
    CHECK(reads(4).empty());
    CHECK(has(reads(6), "thread 0: reads 16 bytes at index 6 of row 0 of argument 1, which is at address "));
    CHECK(has(reads(64), "reads index 64 to 67 of row 0 of argument 1, which has 64 numbers"));
}

TEST_CASE("asynchronous copies are there after their wait, for others after a barrier") {
    const auto copies = [](auto after) {
        return said([after](block_of& block, rows_of x) {
            const auto held = block.shared<float>(64);
            if (block.thread_rank() < 16)
                block.copy_async(held + 4 * block.thread_rank(), x.row(0) + 4 * block.thread_rank());
            after(block, held);
        });
    };
    CHECK(copies([](block_of& block, auto held) {
              block.commit_copies();
              block.wait_copies();
              block.sync();
              static_cast<void>(static_cast<float>(held[63 - block.thread_rank()]));
          }).empty());
    CHECK(has(copies([](block_of& block, auto held) {
                  block.commit_copies();
                  static_cast<void>(static_cast<float>(held[4 * block.thread_rank()]));
              }),
              "thread 0: reads index 0 of shared array 0 while thread 0 has not waited for its asynchronous copy"));
    CHECK(has(copies([](block_of& block, auto held) {
                  block.commit_copies();
                  block.wait_copies(std::integral_constant<int, 1>{});  // one batch may be under way: this one
                  static_cast<void>(static_cast<float>(held[4 * block.thread_rank()]));
              }),
              "has not waited for its asynchronous copy"));
    CHECK(has(copies([](block_of& block, auto held) {
                  block.commit_copies();
                  block.wait_copies();
                  block.warp().shfl(1, 0);
                  static_cast<void>(static_cast<float>(held[60 - 4 * (block.thread_rank() % 16)]));
              }),
              "with no barrier between"));
    CHECK(has(copies([](block_of& block, auto) { block.wait_copies(); }),  // not committed
              "ends with 1 asynchronous copies that it did not wait for"));
}

TEST_CASE("a launch that no GPU would take") {
    CHECK_THROWS_WITH_AS(simulated::launch(thin{}, 1),
                         "kernel thin: found blocks of 48 threads, expected a multiple of 32 up to 1024", error);
    CHECK_THROWS_WITH_AS(simulated::launch(large{}, 1),
                         "kernel large: found 1048576 bytes of shared memory, expected at most 232448", error);
}

}  // namespace fathom::test
