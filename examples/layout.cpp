// What DeepSeek-V3 needs on the 2048 ranks that it was trained on, as the compiler knows it: no rank is run.
#include <cstdio>
#include <exception>
#include <fathom/cost.hpp>
#include <fathom/models/released.hpp>

namespace {

using namespace fathom;

/// As published: pipelines of 16 under DualPipe, experts over 64 ranks, ZeRO-1, and what backward computes again.
struct v3_on_2048
    : training<released::v3, mesh<dp<128>, pp<16>, ep<64>>, precision<weights<bf16>>, sequence_length<4'096>,
               micro_batch<1>, zero<1>, schedule::dual_pipe, recompute<norms, up_projections, swiglu>> {};

static_assert(bytes_per_rank<v3_on_2048>(dp<128>{}, micro_batches<120>{}, host_workers<1>{}) <= 210_GiB);

}  // namespace

int main() try {
    std::fputs(explain<v3_on_2048>(dp<128>{}, micro_batches<120>{}).c_str(), stdout);
    return 0;
} catch (const std::exception& wrong) {
    std::fprintf(stderr, "%s\n", wrong.what());
    return 1;
}
