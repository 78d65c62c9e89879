// A block of a GPU on the CPU: what kernels are written against, with every step of theirs watched.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <fathom/core/bf16.hpp>
#include <fathom/device/block/fragment.hpp>
#include <fathom/device/block/pack.hpp>
#include <fathom/device/simulated/detail/machine.hpp>
#include <fathom/device/simulated/view.hpp>
#include <type_traits>

namespace fathom::simulated {

/// Places in a kernel are found by these two as default arguments.
#define FATHOM_HERE detail::place where = {__builtin_FILE(), __builtin_LINE()}

/// `Threads` neighbouring threads (a power of two up to 32) that exchange registers. All of them must come to every
/// exchange.
template <int Threads> class tile {
    static_assert(Threads > 0 && Threads <= 32 && (Threads & (Threads - 1)) == 0,
                  "fathom: a tile has 1, 2, 4, 8, 16 or 32 threads.");

  public:
    static constexpr int threads = Threads;
    explicit tile(detail::machine& m) : machine_(&m) {}

    [[nodiscard]] int thread_rank() const { return machine_->rank() % Threads; }
    [[nodiscard]] static constexpr int size() { return Threads; }
    /// Which of the block's tiles this is, and how many there are.
    [[nodiscard]] int meta_group_rank() const { return machine_->rank() / Threads; }
    [[nodiscard]] int meta_group_size() const { return machine_->threads() / Threads; }

    /// Waits for all threads; what they wrote before is seen after. Exchanges of registers don't order memory.
    void sync(FATHOM_HERE) const { machine_->meet(level, "sync of a tile", where, true); }
    /// The value of thread `from`; threads give the value that they ask for from others.
    template <class V> V shfl(V value, int from, FATHOM_HERE) const {
        return value_of<V>(exchange(value, "shfl", where), from & (Threads - 1));
    }
    template <class V> V shfl_xor(V value, int mask, FATHOM_HERE) const {
        return value_of<V>(exchange(value, "shfl_xor", where), (thread_rank() ^ mask) & (Threads - 1));
    }
    /// Of the thread `step` above or below, its own value where there is none.
    template <class V> V shfl_down(V value, int step, FATHOM_HERE) const {
        const int from = thread_rank() + step;
        return value_of<V>(exchange(value, "shfl_down", where), from < Threads ? from : thread_rank());
    }
    template <class V> V shfl_up(V value, int step, FATHOM_HERE) const {
        const int from = thread_rank() - step;
        return value_of<V>(exchange(value, "shfl_up", where), from >= 0 ? from : thread_rank());
    }
    /// Bit i says what thread i of the tile said.
    [[nodiscard]] std::uint32_t ballot(bool says, FATHOM_HERE) const {
        const auto* slots = exchange(says, "ballot", where);
        std::uint32_t bits = 0;
        for (int i = 0; i < Threads; ++i) bits |= static_cast<std::uint32_t>(value_of<bool>(slots, i)) << i;
        return bits;
    }
    [[nodiscard]] bool any(bool says, FATHOM_HERE) const { return ballot(says, where) != 0; }
    [[nodiscard]] bool all(bool says, FATHOM_HERE) const {
        return ballot(says, where) == (Threads == 32 ? ~0u : (1u << (Threads % 32)) - 1);
    }

    /// Four 8 x 8 tiles of 2-byte numbers: thread l gives the address of row l % 8 of tile l / 8 and gets in register m
    /// the numbers 2 (l % 4) and the one after of row l / 4 of tile m. `transposed`: of column l / 4, rows 2 (l % 4)
    /// and the one after. (PTX: ldmatrix.sync.aligned.m8n8.x4.shared.b16.)
    template <class T>
    [[nodiscard]] std::array<std::uint32_t, 4> ldmatrix(view<T> row, bool transposed = false, FATHOM_HERE) const {
        static_assert(Threads == 32 && sizeof(T) == 2, "fathom: a whole warp loads tiles of 2-byte numbers.");
        struct given {
            std::array<std::uint16_t, 8> numbers;
        } mine;
        std::memcpy(&mine, read(*machine_, row, 8), sizeof mine);
        const auto* slots = exchange(mine, transposed ? "ldmatrix, transposed" : "ldmatrix", where);
        const int lane = thread_rank();
        std::array<std::uint32_t, 4> registers{};
        for (int m = 0; m < 4; ++m)
            for (int half = 0; half < 2; ++half) {
                const int r = lane / 4, c = 2 * (lane % 4) + half;
                const auto from = value_of<given>(slots, 8 * m + (transposed ? c : r));
                registers[m] |= static_cast<std::uint32_t>(from.numbers[transposed ? r : c]) << (16 * half);
            }
        return registers;
    }
    /// c += a b in bf16 with sums in fp32. (PTX: mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32.)
    void mma(device::fragment_c& c, const device::fragment_a& a, const device::fragment_b& b, FATHOM_HERE) const {
        static_assert(Threads == 32, "fathom: a whole warp multiplies.");
        struct given {
            device::fragment_a a;
            device::fragment_b b;
        };
        const auto* slots = exchange(given{a, b}, "mma", where);
        const auto unpack = [](std::uint32_t word, float* to) {
            for (int half = 0; half < 2; ++half)
                to[half] = std::bit_cast<bf16>(static_cast<std::uint16_t>(word >> (16 * half)));
        };
        // The two rows of a and the two columns of b that this lane's sums need, each from the four lanes that hold it.
        const int lane = thread_rank();
        float rows[2][16], columns[2][16];
        for (int q = 0; q < 4; ++q) {
            const auto from_a = value_of<given>(slots, lane / 4 * 4 + q).a;
            for (int r = 0; r < 4; ++r) unpack(from_a.registers[r], rows[r % 2] + 2 * q + 8 * (r / 2));
            for (int column = 0; column < 2; ++column) {
                const auto from_b = value_of<given>(slots, (2 * (lane % 4) + column) * 4 + q).b;
                for (int r = 0; r < 2; ++r) unpack(from_b.registers[r], columns[column] + 2 * q + 8 * r);
            }
        }
        for (int r = 0; r < 4; ++r) {
            float sum = 0;
            for (int k = 0; k < 16; ++k) sum += rows[r / 2][k] * columns[r % 2][k];
            c.registers[r] += sum;
        }
    }

    template <class T> static std::remove_const_t<T>* read(detail::machine& m, const view<T>& from, int numbers) {
        auto* at = const_cast<std::remove_const_t<T>*>(from.take("reads", numbers));
        m.touch(detail::machine::kind::read, at, static_cast<int>(sizeof(T)) * numbers, from.from(), from.index());
        return at;
    }

  private:
    static constexpr int level = Threads == 32   ? 5
                                 : Threads == 16 ? 4
                                 : Threads == 8  ? 3
                                 : Threads == 4  ? 2
                                                 : Threads / 2;

    template <class V>
    const detail::machine::slot* exchange(const V& value, const char* what, detail::place where) const {
        static_assert(std::is_trivially_copyable_v<V>, "fathom: threads exchange plain values.");
        return machine_->exchange(level, value, what, where);
    }
    template <class V> static V value_of(const detail::machine::slot* slots, int thread) {
        V value;
        std::memcpy(static_cast<void*>(&value), slots[thread].bytes, sizeof value);
        return value;
    }
    detail::machine* machine_;
};

/// The block as one of its threads sees it. Words are those of CUDA's cooperative groups where these have one.
class block {
  public:
    template <class T> using global = view<T>;
    template <class T> using shared_view = view<T>;
    template <class T> using rows = matrix_view<T>;

    explicit block(detail::machine& m) : machine_(&m) {}

    [[nodiscard]] int thread_rank() const { return machine_->rank(); }
    [[nodiscard]] int size() const { return machine_->threads(); }
    /// Which of the grid's blocks this is, and how many there are.
    [[nodiscard]] int block_rank() const { return machine_->block(); }
    [[nodiscard]] int num_blocks() const { return static_cast<int>(machine_->blocks()); }
    template <int Threads> [[nodiscard]] simulated::tile<Threads> tile() const {
        return simulated::tile<Threads>{*machine_};
    }
    [[nodiscard]] simulated::tile<32> warp() const { return tile<32>(); }

    /// Waits for all threads of the block; what they wrote before is seen after.
    void sync(FATHOM_HERE) const { machine_->meet(detail::machine::levels, "sync", where, true); }

    /// The next `count` numbers of the block's shared memory, at a multiple of 128 bytes; all threads ask for the same.
    template <class T> view<T> shared(integer count) {
        const integer first = round_up(taken_, 128);
        taken_ = first + count * static_cast<integer>(sizeof(T));
        if (taken_ > machine_->shared_bytes())
            machine_->fault("takes shared memory up to byte ", taken_, ", but was launched with ",
                            machine_->shared_bytes());
        return {*machine_, reinterpret_cast<T*>(machine_->shared_memory() + first), {true, arrays_++, -1, count}};
    }

    /// Whether places are at multiples of 16 bytes, so that packs of this size may be moved.
    template <class... Places> [[nodiscard]] bool aligned(const Places&... places) const {
        return (... && places.aligned());
    }
    /// N numbers in one access.
    template <class T, class From, int N> void load(device::pack<T, N>& to, const view<From>& from) const {
        static_assert(std::is_same_v<T, std::remove_const_t<From>>, "fathom: a pack holds what memory holds.");
        std::memcpy(static_cast<void*>(&to), simulated::tile<1>::read(*machine_, from, N), sizeof to);
    }
    template <class T, int N> void store(const view<T>& to, const device::pack<T, N>& from) const {
        T* at = to.take("writes", N);
        machine_->touch(detail::machine::kind::write, at, sizeof from, to.from(), to.index());
        std::memcpy(static_cast<void*>(at), &from, sizeof from);
    }

    /// *to = *to + value and *to = max(*to, value), as one step; give what was there before.
    template <class T> T atomic_add(const view<T>& to, T value) const {
        T* at = atomic(to);
        const T before = *at;
        *at = static_cast<T>(before + value);
        return before;
    }
    template <class T> T atomic_max(const view<T>& to, T value) const {
        T* at = atomic(to);
        const T before = *at;
        *at = before < value ? value : before;
        return before;
    }

    /// Copies 16 bytes from global to shared memory beside what the thread does next; `valid` false writes zeros and
    /// reads nothing. Seen by the thread after `wait_copies`, by others after a barrier that follows. (PTX: cp.async.)
    template <class T, class From> void copy_async(const view<T>& to, const view<From>& from, bool valid = true) const {
        static_assert(std::is_same_v<T, std::remove_const_t<From>>, "fathom: a copy keeps the number format.");
        constexpr int numbers = 16 / sizeof(T);
        machine_->copy_async(to.take("copies to", numbers), valid ? from.take("copies from", numbers) : nullptr, 16,
                             valid ? 16 : 0, to.from(), from.from(), to.index(), from.index());
    }
    /// Ends a batch of copies.
    void commit_copies() const { machine_->commit_copies(); }
    /// Waits until at most `left` of this thread's batches are not done: wait_copies(std::integral_constant<int, 1>{}).
    template <int Left = 0> void wait_copies(std::integral_constant<int, Left> = {}) const {
        machine_->wait_copies(Left);
    }

    /// Two numbers as the halves of a register, the first in the lower one.
    [[nodiscard]] std::uint32_t round_pair(float low, float high) const {
        return static_cast<std::uint32_t>(bf16{low}.bits) | static_cast<std::uint32_t>(bf16{high}.bits) << 16;
    }
    /// Ends the launch with an error that names the argument's number; for input that no kernel can work with.
    [[noreturn]] void trap(const char* why) const { machine_->fault(why); }

  private:
    template <class T> T* atomic(const view<T>& to) const {
        T* at = to.take("changes", 1);
        machine_->touch(detail::machine::kind::atomic, at, sizeof(T), to.from(), to.index());
        return at;
    }
    detail::machine* machine_;
    integer taken_ = 0;
    int arrays_ = 0;
};

#undef FATHOM_HERE

}  // namespace fathom::simulated
