// A block of a GPU: the vocabulary of the simulated block as instructions of Hopper. Read beside simulated/block.hpp,
// which documents every word.
#pragma once

#if defined(__CUDACC__)

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <fathom/device/block/fragment.hpp>
#include <fathom/device/block/pack.hpp>
#include <fathom/tensor/matrix.hpp>
#include <type_traits>

namespace fathom::cuda {
namespace detail {

/// The launch's dynamic shared memory, one array for all kernels.
extern __shared__ __align__(128) unsigned char shared_memory[];

__device__ inline std::uint32_t shared_address(const void* at) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}

}  // namespace detail

template <int Threads> class tile {
    static_assert(Threads > 0 && Threads <= 32 && (Threads & (Threads - 1)) == 0,
                  "fathom: a tile has 1, 2, 4, 8, 16 or 32 threads.");

  public:
    static constexpr int threads = Threads;

    [[nodiscard]] __device__ int thread_rank() const { return static_cast<int>(threadIdx.x) % Threads; }
    [[nodiscard]] __device__ static constexpr int size() { return Threads; }
    [[nodiscard]] __device__ int meta_group_rank() const { return static_cast<int>(threadIdx.x) / Threads; }
    [[nodiscard]] __device__ int meta_group_size() const { return static_cast<int>(blockDim.x) / Threads; }

    __device__ void sync() const { __syncwarp(mask()); }
    template <class V> __device__ V shfl(V value, int from) const { return __shfl_sync(mask(), value, from, Threads); }
    template <class V> __device__ V shfl_xor(V value, int with) const {
        return __shfl_xor_sync(mask(), value, with, Threads);
    }
    template <class V> __device__ V shfl_down(V value, int step) const {
        return __shfl_down_sync(mask(), value, static_cast<unsigned>(step), Threads);
    }
    template <class V> __device__ V shfl_up(V value, int step) const {
        return __shfl_up_sync(mask(), value, static_cast<unsigned>(step), Threads);
    }
    [[nodiscard]] __device__ std::uint32_t ballot(bool says) const {
        return (__ballot_sync(mask(), says) & mask()) >> first_lane();
    }
    [[nodiscard]] __device__ bool any(bool says) const { return ballot(says) != 0; }
    [[nodiscard]] __device__ bool all(bool says) const { return ballot(says) == lanes; }

    template <class T>
    [[nodiscard]] __device__ std::array<std::uint32_t, 4> ldmatrix(const T* row, bool transposed = false) const {
        static_assert(Threads == 32 && sizeof(T) == 2, "fathom: a whole warp loads tiles of 2-byte numbers.");
        std::uint32_t r0, r1, r2, r3;
        const std::uint32_t at = detail::shared_address(row);
        if (transposed)  // a constant wherever it is called, so one of the two remains
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)
                         : "r"(at)
                         : "memory");
        else
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)
                         : "r"(at)
                         : "memory");
        return {r0, r1, r2, r3};
    }
    __device__ void mma(device::fragment_c& c, const device::fragment_a& a, const device::fragment_b& b) const {
        static_assert(Threads == 32, "fathom: a whole warp multiplies.");
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(c.registers[0]), "+f"(c.registers[1]), "+f"(c.registers[2]), "+f"(c.registers[3])
            : "r"(a.registers[0]), "r"(a.registers[1]), "r"(a.registers[2]), "r"(a.registers[3]), "r"(b.registers[0]),
              "r"(b.registers[1]));
    }

  private:
    static constexpr std::uint32_t lanes = Threads == 32 ? ~0u : (1u << (Threads % 32)) - 1;
    [[nodiscard]] __device__ static int first_lane() { return static_cast<int>(threadIdx.x) % 32 / Threads * Threads; }
    [[nodiscard]] __device__ static std::uint32_t mask() { return lanes << first_lane(); }
};

class block {
  public:
    template <class T> using global = T*;
    template <class T> using shared_view = T*;
    template <class T> using rows = matrix<T>;

    [[nodiscard]] __device__ int thread_rank() const { return static_cast<int>(threadIdx.x); }
    [[nodiscard]] __device__ int size() const { return static_cast<int>(blockDim.x); }
    [[nodiscard]] __device__ int block_rank() const { return static_cast<int>(blockIdx.x); }
    [[nodiscard]] __device__ int num_blocks() const { return static_cast<int>(gridDim.x); }
    template <int Threads> [[nodiscard]] __device__ cuda::tile<Threads> tile() const { return {}; }
    [[nodiscard]] __device__ cuda::tile<32> warp() const { return {}; }

    __device__ void sync() const { __syncthreads(); }

    template <class T> __device__ T* shared(integer count) {
        const integer first = round_up(taken_, 128);
        taken_ = first + count * static_cast<integer>(sizeof(T));
        return reinterpret_cast<T*>(detail::shared_memory + first);
    }

    template <class... Places> [[nodiscard]] __device__ bool aligned(Places... places) const {
        return (... && (reinterpret_cast<std::uintptr_t>(places) % 16 == 0));
    }
    template <class T, class From, int N> __device__ void load(device::pack<T, N>& to, From* from) const {
        static_assert(std::is_same_v<T, std::remove_const_t<From>>, "fathom: a pack holds what memory holds.");
        to = *reinterpret_cast<const device::pack<T, N>*>(from);
    }
    template <class T, int N> __device__ void store(T* to, const device::pack<T, N>& from) const {
        *reinterpret_cast<device::pack<T, N>*>(to) = from;
    }

    template <class T> __device__ T atomic_add(T* to, T value) const {
        if constexpr (std::is_integral_v<T> && sizeof(T) == 8)
            return static_cast<T>(atomicAdd(reinterpret_cast<unsigned long long*>(to),  // two's complement adds alike
                                            static_cast<unsigned long long>(value)));
        else
            return atomicAdd(to, value);
    }
    template <class T> __device__ T atomic_max(T* to, T value) const {
        if constexpr (std::is_integral_v<T> && sizeof(T) == 8) {
            return static_cast<T>(atomicMax(reinterpret_cast<long long*>(to), static_cast<long long>(value)));
        } else if constexpr (std::is_integral_v<T>) {
            return atomicMax(to, value);
        } else {
            static_assert(std::is_same_v<T, float>, "fathom: atomic_max takes integers and float.");
            int before = __float_as_int(*to);
            while (__int_as_float(before) < value) {
                const int seen = atomicCAS(reinterpret_cast<int*>(to), before, __float_as_int(value));
                if (seen == before) break;
                before = seen;
            }
            return __int_as_float(before);
        }
    }

    template <class T, class From> __device__ void copy_async(T* to, From* from, bool valid = true) const {
        static_assert(std::is_same_v<T, std::remove_const_t<From>>, "fathom: a copy keeps the number format.");
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(detail::shared_address(to)),
                     "l"(__cvta_generic_to_global(from)), "r"(valid ? 16 : 0)
                     : "memory");
    }
    __device__ void commit_copies() const { asm volatile("cp.async.commit_group;" ::: "memory"); }
    template <int Left = 0> __device__ void wait_copies(std::integral_constant<int, Left> = {}) const {
        asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory");
    }

    [[nodiscard]] __device__ std::uint32_t round_pair(float low, float high) const {
        std::uint32_t pair;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
        return pair;
    }
    __device__ void trap(const char*) const { __trap(); }

  private:
    integer taken_ = 0;
};

}  // namespace fathom::cuda

#endif
