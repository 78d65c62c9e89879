// Looks at every rank before the first step, so that a machine that is short of memory or far too slow is named at once
// and not found hours later.
#pragma once

#include <algorithm>
#include <cstddef>
#include <fathom/comm/all_gather.hpp>
#include <fathom/comm/all_reduce.hpp>
#include <fathom/comm/link.hpp>
#include <fathom/core/error.hpp>
#include <fathom/core/seconds_now.hpp>
#include <fathom/device/host/queue.hpp>
#include <fathom/observe/free_memory.hpp>
#include <fathom/ops/product/gemm.hpp>
#include <string>
#include <vector>

namespace fathom::train {

/// What a rank must at least reach: a small part of what any processor and network do, so that busy ones pass.
struct health_floors {
    double product = 1e8;     // FLOP/s of one worker's product
    double all_reduce = 1e6;  // bytes/s of a sum over all ranks
};

/// Does a short product and a short sum over all ranks, and compares the free memory of each rank's machine with the
/// `bytes` that each of its `neighbours` ranks is about to take. Some milliseconds. One rank only looks at its memory.
/// All ranks call it together. Errors: ranks that do not come (at the time limit of the communicator); too little
/// memory, or a speed below its floor: names each such rank, what was found and what was expected, on all ranks.
inline void check_health(const comm::link& ranks, host::queue& queue, integer bytes, integer neighbours = 1,
                         const health_floors& least = {}) {
    struct findings {
        double product, all_reduce;
        integer free, needed;
    } mine{least.product, least.all_reduce, observe::free_memory(), bytes * neighbours};
    constexpr integer n = 128, tries = 3;
    if (ranks.size() > 1) {
        std::vector<float> numbers(3 * n * n, 0.5f);
        float *a = numbers.data(), *b = a + n * n, *c = b + n * n;
        double product = 1e30, sum = 1e30;
        for (integer i = 0; i < tries; ++i) {
            const double began = seconds_now();
            queue.enqueue(1, [&](integer, int) {
                ops::gemm(ops::side::plain, ops::side::transposed, n, n, n, 1.0f, a, n, b, n, 0.0f, c, n);
            });
            const double done = seconds_now();
            ranks.run(comm::all_reduce(a, n * n, comm::reduction::max).from("health check"));
            product = std::min(product, done - began);
            sum = std::min(sum, seconds_now() - done);
        }
        mine.product = 2.0 * n * n * n / product;
        mine.all_reduce = static_cast<double>(sizeof(float)) * n * n / sum;
    }
    std::vector<findings> all(static_cast<std::size_t>(ranks.size()), mine);
    if (ranks.size() > 1)
        ranks.run(comm::all_gather(reinterpret_cast<const std::byte*>(&mine), reinterpret_cast<std::byte*>(all.data()),
                                   sizeof mine)
                      .from("findings of the health check"));
    std::string wrong;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        const auto too_little = [&](const auto&... parts) { wrong += text_of("; rank ", rank, ": ", parts...); };
        const findings& seen = all[rank];
        if (seen.free >= 0 && seen.free < seen.needed)
            too_little("found ", seen.free, " bytes of free memory on its machine, expected the ", seen.needed,
                       " that its ranks will take");
        if (seen.product < least.product)
            too_little("found a product at ", seen.product / 1e9, " GFLOP/s, expected at least ", least.product / 1e9);
        if (seen.all_reduce < least.all_reduce)
            too_little("found a sum over ranks at ", seen.all_reduce / 1e6, " MB/s, expected at least ",
                       least.all_reduce / 1e6);
    }
    if (!wrong.empty()) fail("health check", wrong, "; with health_check=false a run starts anyway");
}

}  // namespace fathom::train
