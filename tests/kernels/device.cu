// The kernels' tests on a GPU: the same sources, compiled by nvcc and linked with this main. All that they allocate is
// memory that the CPU and the GPU share. Tests of what only the simulated block can tell are left out.
//     python3 tests/kernels/run.py --device FOLDER      makes FOLDER/kernels, which is run without arguments
#define DOCTEST_CONFIG_IMPLEMENT
#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>

namespace {

/// The next bytes of one large block, whose pages are there when they are touched; nothing is given back.
void* take(std::size_t bytes, std::size_t alignment) {
    constexpr std::size_t size = std::size_t{16} << 30;
    static char* const block = [] {
        void* memory = nullptr;
        if (const cudaError_t status = cudaMallocManaged(&memory, size); status != cudaSuccess) {
            std::fprintf(stderr, "no memory that CPU and GPU share: %s\n", cudaGetErrorString(status));
            std::exit(1);
        }
        return static_cast<char*>(memory);
    }();
    static std::size_t used = 0;
    used = (used + alignment - 1) / alignment * alignment;
    if (bytes > size - used) throw std::bad_alloc{};
    used += bytes;
    return block + used - bytes;
}

}  // namespace

void* operator new(std::size_t bytes) { return take(bytes, 256); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return take(bytes, static_cast<std::size_t>(alignment) < 256 ? 256 : static_cast<std::size_t>(alignment));
}
void operator delete(void*) noexcept {}
void operator delete(void*, std::size_t) noexcept {}
void operator delete(void*, std::align_val_t) noexcept {}
void operator delete(void*, std::size_t, std::align_val_t) noexcept {}

int main(int argc, char** argv) {
    doctest::Context context(argc, argv);
    context.addFilter("test-suite-exclude", "simulated");
    return context.run();
}
