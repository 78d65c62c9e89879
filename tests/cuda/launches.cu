// Kernels that nvcc compiled, put on queues of the stand-in's library, which says how they were launched.
#include <cstdio>
#include <fathom/cuda.hpp>
#include <fathom/device/block/reduce.hpp>
#include <fathom/device/cuda/launch.hpp>

using namespace fathom;

/// y[1, 64] = 2 x[1, 64], with as much shared memory as is asked for.
template <int Threads> struct double_kernel {
    static constexpr const char* name = "double";
    static constexpr int threads = Threads;
    integer bytes = 0;
    integer shared_bytes() const { return bytes; }

    template <class Block>
    FATHOM_DEVICE void operator()(Block& block, device::rows<Block, float> y,
                                  device::rows<Block, const float> x) const {
        const integer i = block.thread_rank();
        if (i < x.width) y(0, i) = 2 * static_cast<float>(x(0, i));
    }
};

template <class Call> void say(Call&& call) {
    try {
        call();
    } catch (const error& problem) {
        std::puts(problem.what());
    }
}

int main() {
    say([] {
        cuda::gpu gpu{0, cuda::built_for};
        const cuda::stream one{gpu}, other{gpu};
        const cuda::memory all{one.queue(), 4096};
        const auto x = vector_view(reinterpret_cast<float*>(all.data()), 64), y = vector_view(x.data + 64, 64);
        const matrix<const float> in = x;
        cuda::launch(one.queue(), double_kernel<128>{}, 3, y, in);
        cuda::launch(one.queue(), double_kernel<128>{100 << 10}, 1, y, in);
        say([&] { cuda::launch(one.queue(), double_kernel<128>{300 << 10}, 1, y, in); });
        cuda::graph step{gpu, "step"};
        for (int n = 0; n < 2; ++n)
            step.run(one.queue(), [&] { cuda::launch(one.queue(), double_kernel<64>{}, 2, y, in); });
        cuda::launch(other.queue(), double_kernel<32>{}, 1, x, matrix<const float>{y});  // waits for nothing
    });
}
