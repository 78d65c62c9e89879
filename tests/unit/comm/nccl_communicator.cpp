// The NCCL communicator on a stand-in for NCCL and CUDA: every collective is the host's, and what fails is said.
#include <doctest/doctest.h>

#include <fathom/comm.hpp>
#include <fathom/cuda.hpp>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "every_collective.hpp"
#include "fake_nccl.hpp"
#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#endif

namespace fathom {
namespace {

using ranks_of_gpus = comm::nccl::communicator;
namespace fake = test::fake;

/// body(communicator) on so many ranks that meet as threads.
template <class Body>
void on_gpus(integer ranks, Body&& body, const comm::nccl::settings& tuned = {}, comm::watchdog limit = {}) {
    comm::threads::run(ranks, [&](comm::threads::communicator& host) {
        ranks_of_gpus gpus = ranks_of_gpus::over(host, nullptr, tuned, limit, fake::calls());
        body(gpus);
    });
}

template <class Body> std::string said(Body&& body) {
    try {
        body();
    } catch (const error& problem) {
        return problem.what();
    }
    return "nothing";
}

ranks_of_gpus alone(comm::watchdog limit = {}, const comm::nccl::settings& tuned = {}) {
    return {nullptr, ranks_of_gpus::new_id(fake::calls()), 0, 1, tuned, limit, "world", fake::calls()};
}

}  // namespace

TEST_CASE_TEMPLATE("nccl: reductions of all formats are the plain loop's", T, double, float, bf16, std::int64_t,
                   std::int32_t) {
    for (const integer n : {1, 2, 3, 4}) on_gpus(n, test::reductions<T, ranks_of_gpus>);
}

TEST_CASE_TEMPLATE("nccl: gathers, broadcasts and all_to_all of all formats", T, double, float, bf16, std::int64_t,
                   std::int32_t, std::byte) {
    for (const integer n : {1, 2, 3, 4}) {
        on_gpus(n, test::gathers<T, ranks_of_gpus>);
        on_gpus(n, test::lengths<T, ranks_of_gpus>);
    }
    CHECK(fake::now().outside_groups == 0);
}

TEST_CASE("nccl: exchanges in both directions and with oneself, barriers, splits") {
    on_gpus(4, test::ring<ranks_of_gpus>);
    on_gpus(3, test::orders<ranks_of_gpus>);
    on_gpus(4, [](ranks_of_gpus& ranks) {
        const integer me = ranks.rank();
        ranks.run(comm::barrier());
        ranks_of_gpus rows = ranks.split(me / 2, me, "rows"), columns = ranks.split(me % 2, -me, "columns");
        CHECK(rows.size() == 2);
        CHECK(rows.rank() == me % 2);
        CHECK(columns.rank() == 1 - me / 2);
        CHECK(std::string{columns.name()} == "columns");
        integer bits = integer{1} << me;
        rows.run(comm::all_reduce(&bits, 1));
        CHECK(bits == (me < 2 ? 3 : 12));
        CHECK_THROWS_AS(auto refused = ranks.split(-1, 0, "none"), error);
        ranks.settle();
        CHECK(ranks.recorder().calls(comm::operation::barrier) == 1);
        CHECK(ranks.recorder()[0].state == comm::record_state::done);
    });
    CHECK(test::gpu::now().events == 0);
    CHECK(test::gpu::now().streams == 0);
    CHECK(test::gpu::now().blocks.empty());
    CHECK(fake::now().made == fake::now().destroyed);
    CHECK(fake::now().aborted == 0);
}

TEST_CASE("nccl: another's communicator stays the other's") {
    void* foreign = nullptr;
    comm::nccl::configuration how;
    REQUIRE(fake::init(&foreign, 1, ranks_of_gpus::new_id(fake::calls()), 0, &how) == 0);
    const int destroyed = fake::now().destroyed;
    {
        ranks_of_gpus ranks = ranks_of_gpus::of(foreign, nullptr, {}, {}, "theirs", fake::calls());
        float x = 2;
        ranks.run(comm::all_reduce(&x, 1));
        CHECK(x == 2);
        CHECK(ranks.size() == 1);
    }
    CHECK(fake::now().destroyed == destroyed + 1);  // of exchanges, which is ours
    fake::destroy(foreign);
}

TEST_CASE("nccl: small messages go over the communicator that was made for them") {
    using comm::nccl::algorithm, comm::nccl::protocol;
    ranks_of_gpus ranks = alone(
        {}, {.choices = {{"world", 64, algorithm::tree, protocol::ll}, {.axis = "world", .how = algorithm::ring}}});
    std::vector<float> data(100);
    fake::now().used.clear();
    ranks.run(comm::all_reduce(data.data(), 16));
    ranks.run(comm::all_reduce(data.data(), 17));
    ranks.run(comm::barrier());
    CHECK(fake::now().used == std::vector<std::string>{"Tree LL", "Ring -", "Tree LL"});
    CHECK(std::getenv("NCCL_ALGO") == nullptr);
}

TEST_CASE("nccl: ranks that never come to the start end it at its limit") {
    fake::now().never_starts = true;
    CHECK(said([] { auto never = alone({.start = 0.01}); }) ==
          "rank 0 of world: start-up was not finished within 0.01 s: not all ranks came");
    fake::now().never_starts = false;
    CHECK(said([] { const ranks_of_gpus wrong{nullptr, {}, 2, 2, {}, {}, "world", fake::calls()}; }) ==
          "NCCL: found rank 2 of 2, expected a rank below the number of ranks");
}

TEST_CASE("nccl: what hangs is aborted at the limit, and every later call says why") {
    ranks_of_gpus ranks = alone({.limit = 0.01});
    float x = 1;
    ranks.run(comm::all_reduce(&x, 1).from("loss"));
    ranks.settle();
    test::gpu::now().stalls = true;
    const int aborted = fake::now().aborted;
    const std::string why =
        "rank 0 of world: all_reduce #1 of world (gradients) was not finished within 0.01 s, the last that was is "
        "all_reduce #0 of world (loss)";
    CHECK(said([&] {
              ranks.run(comm::all_reduce(&x, 1).from("gradients"));
              ranks.settle();
          }) == why);
    CHECK(fake::now().aborted == aborted + 2);
    test::gpu::now().stalls = false;
    CHECK(said([&] { ranks.run(comm::barrier()); }) == why);
    CHECK(said([&] { auto part = ranks.split(0, 0, "part"); }) == why);
}

TEST_CASE("nccl: a peer that fails while operations are under way") {
    ranks_of_gpus ranks = alone();
    float x = 1;
    test::gpu::now().stalls = true;
    auto under_way = ranks.start(comm::all_reduce(&x, 1));
    CHECK_FALSE(under_way.done());
    fake::now().fault = fake::remote_error;
    CHECK(said([&] { under_way.wait(); }) ==
          "rank 0 of world: an operation under way: found remote process exited: peer gone, expected no error of NCCL");
    fake::now().fault = 0;
    test::gpu::now().stalls = false;
}

TEST_CASE("nccl: a handle that dies first ends the communicator") {
    ranks_of_gpus ranks = alone();
    float x = 1;
    test::gpu::now().stalls = true;
    { auto dropped = ranks.start(comm::all_reduce(&x, 1)); }
    test::gpu::now().stalls = false;
    CHECK(said([&] { ranks.run(comm::barrier()); }) == "rank 0 of world: all_reduce #0 of world was left unfinished");
}

TEST_CASE("nccl: wrong requests are refused before NCCL sees them") {
    ranks_of_gpus ranks = alone();
    float x = 1;
    CHECK(said([&] { ranks.run(comm::broadcast(&x, 1, 1)); }) ==
          "broadcast of world: the root is rank 1, expected one below 1");
    ranks.run(comm::barrier());
}

TEST_CASE("nccl: operations come after what was put on the queue, and a kernel that does not wait for them is found") {
    test::gpu::machine& machine = test::gpu::now();
    machine.reset();
    cuda::gpu gpu{0, {}, test::gpu::calls()};
    const cuda::stream compute{gpu};
    const cuda::queue& queue = compute.queue();
    ranks_of_gpus ranks{queue.stream, ranks_of_gpus::new_id(fake::calls()), 0, 1, {}, {}, "dp", fake::calls()};
    std::vector<float> gradients(64), next(64), received(64);
    const matrix<float> all = vector_view(gradients.data(), 64);
    const auto kernel = [&](const char* name, matrix<float> writes) {
        queue.enqueue(name, {cuda::access_of(writes)}, [](void*) {});
    };
    kernel("backward", all);
    auto sum = ranks.start(comm::all_reduce(gradients.data(), 64));
    kernel("the next block", vector_view(next.data(), 64));  // beside
    sum.wait();
    kernel("adamw", all);
    const std::vector<comm::message> both{comm::send_to(0, next.data(), 64),
                                          comm::receive_from(0, received.data(), 64)};
    auto exchange = ranks.start(comm::exchange(both));
    ranks.run(comm::all_reduce(gradients.data(), 64));
    exchange.wait();
    kernel("forward", vector_view(next.data(), 64));
    CHECK(machine.order.faults.empty());

    auto late = ranks.start(comm::all_reduce(gradients.data(), 64));
    kernel("zero", all.columns_at(60, 4));
    late.wait();
    REQUIRE(machine.order.faults.size() == 1);
    CHECK(machine.order.faults[0].starts_with(
        "zero on stream 1 writes what ncclAllReduce on stream 2 writes, and nothing orders them: 16 bytes"));
    auto sent = ranks.start(comm::exchange(both));
    kernel("overwrites", vector_view(next.data(), 64));
    sent.wait();
    CHECK(machine.order.faults.back().starts_with("overwrites on stream 1 writes what ncclSend on stream 3 reads"));
    ranks.settle();
}

TEST_CASE("nccl: libraries that are absent, old or incomplete") {
    CHECK(said([] { std::ignore = shared_library::open("NCCL", "no_such_function", {"libno_such_library.so.2"}); }) ==
          "NCCL cannot be loaded: found libno_such_library.so.2: cannot open shared object file: No such file or "
          "directory; expected libno_such_library.so.2 in a folder of the system or of LD_LIBRARY_PATH");
    fake::now().version = 21403;
    CHECK(said([] { comm::nccl::library::from(fake::library()); }) ==
          "NCCL: found version 2.14, expected 2.18 or later");
    fake::now().version = 22800;
    fake::missing = "ncclCommSplit";
    CHECK(said([] { comm::nccl::library::from(fake::library()); }) ==
          "NCCL has no function ncclCommSplit, expected a later version");
    fake::missing = "";
}

#if defined(NCCL_MAJOR)
TEST_CASE("nccl: our words for NCCL's interface are its header's") {
    using comm::nccl::configuration, comm::nccl::unique_id;
    static_assert(sizeof(unique_id) == sizeof(ncclUniqueId));
    static_assert(offsetof(configuration, magic) == offsetof(ncclConfig_t, magic));
    static_assert(offsetof(configuration, version) == offsetof(ncclConfig_t, version));
    static_assert(offsetof(configuration, blocking) == offsetof(ncclConfig_t, blocking));
    static_assert(offsetof(configuration, net_name) == offsetof(ncclConfig_t, netName));
    static_assert(offsetof(configuration, split_share) == offsetof(ncclConfig_t, splitShare));
    static_assert(sizeof(configuration) <= sizeof(ncclConfig_t) && configuration::unset == NCCL_CONFIG_UNDEF_INT);
    static_assert(comm::nccl::success == ncclSuccess && comm::nccl::in_progress == ncclInProgress);
    static_assert(fake::remote_error == ncclRemoteError && fake::failed == ncclInternalError);
    namespace form = comm::nccl::detail;
    const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
    CHECK(configuration{}.magic == theirs.magic);
    CHECK(form::format_of(comm::element::fp64) == ncclFloat64);
    CHECK(form::format_of(comm::element::fp32) == ncclFloat32);
    CHECK(form::format_of(comm::element::bf16) == ncclBfloat16);
    CHECK(form::format_of(comm::element::int64) == ncclInt64);
    CHECK(form::format_of(comm::element::int32) == ncclInt32);
    CHECK(form::format_of(comm::element::byte) == ncclUint8);
    CHECK(form::operation_of(comm::reduction::sum) == ncclSum);
    CHECK(form::operation_of(comm::reduction::max) == ncclMax);
}
#endif

}  // namespace fathom
