// The program of `examples/layout.cpp` with one more layout of known kinds: other degrees, schedule and recomputation.
#include <cstdio>
#include <fathom/cost.hpp>
#include <fathom/models/released.hpp>

namespace {

using namespace fathom;

struct first : training<released::v3, mesh<dp<128>, pp<16>, ep<64>>, precision<weights<bf16>>, sequence_length<4'096>,
                        micro_batch<1>, zero<1>, schedule::dual_pipe, recompute<norms, up_projections, swiglu>> {};
static_assert(bytes_per_rank<first>(dp<128>{}, micro_batches<120>{}, host_workers<1>{}) <= 210_GiB);

struct second : training<released::v3, mesh<dp<128>, pp<4>, tp<4>, ep<128>>, precision<weights<bf16>>,
                         sequence_length<4'096>, micro_batch<1>, zero<1>, schedule::one_f_one_b, recompute<blocks>> {};
static_assert(bytes_per_rank<second>(dp<128>{}, micro_batches<16>{}, host_workers<1>{}) <= 210_GiB);

}  // namespace

int main() {
    std::fputs(explain<first>(dp<128>{}, micro_batches<120>{}).c_str(), stdout);
    std::fputs(explain<second>(dp<128>{}, micro_batches<16>{}).c_str(), stdout);
}
